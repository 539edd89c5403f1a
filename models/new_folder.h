// A folder that takes its name when all its files are there.
#ifndef HALYARD_MODELS_NEW_FOLDER_H
#define HALYARD_MODELS_NEW_FOLDER_H

#include <filesystem>
#include <string_view>

namespace halyard::models {

/// Made under a temporary name beside `path`, and removed with its files unless it is finished. Failures throw `Error`.
class NewFolder {
public:
    /// Refuses a `path` where something is.
    explicit NewFolder(const std::filesystem::path &path);
    ~NewFolder();
    NewFolder(const NewFolder &) = delete;
    NewFolder &operator=(const NewFolder &) = delete;

    /// Where it is until it is finished.
    const std::filesystem::path &temporary() const noexcept { return temporary_; }
    /// Writes a whole file.
    void write(const char *name, std::string_view text) const;
    void finish();

private:
    void refuse_if_there() const;

    const std::filesystem::path path_;
    std::filesystem::path temporary_;  // empty: finished
};

}  // namespace halyard::models

#endif
