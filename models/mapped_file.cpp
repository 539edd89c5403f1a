#include "mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include "fail.h"

namespace halyard::models {

namespace {

std::string reason(int error) {
    return std::generic_category().message(error);
}

/// The pages that [data, data + bytes) touches.
struct Pages {
    Pages(const void *data, std::size_t bytes) {
        const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
        const auto first = reinterpret_cast<std::uintptr_t>(data) / page * page;
        begin = reinterpret_cast<void *>(first);
        size = (reinterpret_cast<std::uintptr_t>(data) + bytes - first + page - 1) / page * page;
    }
    void *begin;
    std::size_t size;
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path &path) {
    // Opening a pipe must not wait for a writer.
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) {
        refuse(path, "cannot be opened for reading (", reason(errno), ")");
    }
    struct stat status {};
    const bool regular = fstat(file, &status) == 0 && S_ISREG(status.st_mode);
    int error = 0;
    if (regular && status.st_size > 0) {
        size_ = static_cast<std::size_t>(status.st_size);
        data_ = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
        if (data_ == MAP_FAILED) {
            error = errno;
            data_ = nullptr;
        }
    }
    close(file);
    if (!regular) {
        refuse(path, "is not a regular file");
    }
    if (error != 0) {
        fail(error == ENOMEM ? HALYARD_OUT_OF_MEMORY : HALYARD_INVALID_ARGUMENT, path, "cannot be mapped (",
             reason(error), ")");
    }
}

MappedFile::~MappedFile() {
    if (data_ != nullptr) {
        munmap(data_, size_);
    }
}

MappedFile::MappedFile(MappedFile &&other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile &MappedFile::operator=(MappedFile &&other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

void read_ahead(const void *data, std::size_t bytes) noexcept {
    if (bytes > 0) {
        const Pages pages(data, bytes);
        madvise(pages.begin, pages.size, MADV_WILLNEED);
    }
}

void let_go(const void *data, std::size_t bytes) noexcept {
    if (bytes > 0) {
        // Pages that a neighbour shares go as well: nothing was written to them, so they can be read again.
        const Pages pages(data, bytes);
        madvise(pages.begin, pages.size, MADV_DONTNEED);
    }
}

}  // namespace halyard::models
