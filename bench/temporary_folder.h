// A folder for temporary files of one process, in a place that others may share.
#ifndef HALYARD_BENCH_TEMPORARY_FOLDER_H
#define HALYARD_BENCH_TEMPORARY_FOLDER_H

#include <filesystem>
#include <string>

namespace halyard::bench {

class TemporaryFolder {
public:
    /** Makes PARENT/NAME-XXXXXX, for this user alone and with a name that nobody can know before, and removes folders of
     * that kind that killed processes of this user left. Throws std::runtime_error. */
    TemporaryFolder(const std::filesystem::path &parent, const std::string &name);
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder &) = delete;
    TemporaryFolder &operator=(const TemporaryFolder &) = delete;

    const std::filesystem::path &path() const { return folder; }

private:
    std::filesystem::path folder;
    int lock = -1;  // held as long as this process, or one that it forked, lives
};

}  // namespace halyard::bench

#endif
