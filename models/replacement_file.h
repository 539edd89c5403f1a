// A file that takes its name when it is whole.
#ifndef HALYARD_MODELS_REPLACEMENT_FILE_H
#define HALYARD_MODELS_REPLACEMENT_FILE_H

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace halyard::models {

/// A name in the folder of `path` that hardly anything else has.
std::filesystem::path temporary_beside(const std::filesystem::path &path);
/// Makes what was renamed to `path` outlast a crash of the system, where the file system can.
void sync_folder_of(const std::filesystem::path &path) noexcept;

/// Written under a temporary name in the folder of `path`, and removed unless it is finished. Failures throw `Error`.
class ReplacementFile {
public:
    /// Refuses a `path` that is there and no regular file.
    explicit ReplacementFile(const std::filesystem::path &path);
    ~ReplacementFile();
    ReplacementFile(const ReplacementFile &) = delete;
    ReplacementFile &operator=(const ReplacementFile &) = delete;

    void write(const void *data, std::size_t bytes);
    std::uint64_t size() const noexcept { return size_; }
    /// Makes the file as long as it will be, with zeros, so that a reader can check its header.
    void set_length(std::uint64_t bytes);
    /// Where it is until it is finished.
    const std::filesystem::path &temporary() const noexcept { return temporary_; }
    /// Brings it to the disk and replaces what is at `path` at once.
    void finish();

private:
    void create(unsigned mode);
    [[noreturn]] void cannot(const char *what, int error) const;

    std::filesystem::path path_, temporary_;
    int file_ = -1;
    std::uint64_t size_ = 0;
};

}  // namespace halyard::models

#endif
