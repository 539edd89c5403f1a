// A file's contents in memory, mapped and read only.
#ifndef HALYARD_MODELS_MAPPED_FILE_H
#define HALYARD_MODELS_MAPPED_FILE_H

#include <cstddef>
#include <filesystem>
#include <string_view>

namespace halyard::models {

/// Mapped as long as this lives. Empty files are empty, not errors.
class MappedFile {
public:
    /// Throws `Error` unless `path` is a regular file that can be read.
    explicit MappedFile(const std::filesystem::path &path);
    ~MappedFile();
    MappedFile(MappedFile &&other) noexcept;
    MappedFile &operator=(MappedFile &&other) noexcept;

    const std::byte *data() const noexcept { return static_cast<const std::byte *>(data_); }
    std::size_t size() const noexcept { return size_; }
    std::string_view text() const noexcept { return {static_cast<const char *>(data_), size_}; }

private:
    void *data_ = nullptr;
    std::size_t size_ = 0;
};

/// Asks the system to read [data, data + bytes) of a mapped file ahead.
void read_ahead(const void *data, std::size_t bytes) noexcept;

/// Takes the whole pages of [data, data + bytes) of a mapped file out of the process; they come back when they are
/// read.
void let_go(const void *data, std::size_t bytes) noexcept;

}  // namespace halyard::models

#endif
