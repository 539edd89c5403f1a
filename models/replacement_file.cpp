#include "replacement_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "fail.h"

namespace halyard::models {

std::filesystem::path temporary_beside(const std::filesystem::path &path) {
    const auto now = std::chrono::system_clock::now().time_since_epoch().count() % 1'000'000'000;
    return path.parent_path() / sentence(".halyard-", getpid(), "-", now);
}

void sync_folder_of(const std::filesystem::path &path) noexcept {
    const int directory =
        open(path.has_parent_path() ? path.parent_path().c_str() : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory >= 0) {
        fsync(directory);
        close(directory);
    }
}

ReplacementFile::ReplacementFile(const std::filesystem::path &path) : path_(path) {
    struct stat old {};
    const bool exists = lstat(path.c_str(), &old) == 0;
    if (exists && !S_ISREG(old.st_mode)) {
        refuse(path, "is ",
               S_ISLNK(old.st_mode)   ? "a symbolic link"
               : S_ISDIR(old.st_mode) ? "a folder"
                                      : "a pipe, socket or device",
               ", and only a regular file is replaced: name another file");
    }
    create(exists ? old.st_mode & 0777 : 0666);
}

ReplacementFile::~ReplacementFile() {
    if (file_ >= 0) {
        close(file_);
        unlink(temporary_.c_str());
    }
}

/// A new file, under a name that no other file has.
void ReplacementFile::create(unsigned mode) {
    constexpr int attempts = 100;
    for (int i = 0; i < attempts && file_ < 0; i++) {
        temporary_ = temporary_beside(path_);
        file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        if (file_ < 0 && errno != EEXIST) {
            break;
        }
    }
    if (file_ < 0) {
        cannot("created", errno);
    }
}

void ReplacementFile::cannot(const char *what, int error) const {
    refuse(path_, "cannot be ", what, ": ", std::strerror(error));
}

void ReplacementFile::write(const void *data, std::size_t bytes) {
    constexpr std::size_t most = 1 << 30;  // Linux writes 2 GiB at a time at most
    const char *at = static_cast<const char *>(data);
    while (bytes > 0) {
        const ssize_t written = ::write(file_, at, std::min(bytes, most));
        if (written < 0 && errno != EINTR) {
            cannot("written", errno);
        }
        if (written > 0) {
            at += written;
            bytes -= static_cast<std::size_t>(written);
            size_ += static_cast<std::size_t>(written);
        }
    }
}

void ReplacementFile::set_length(std::uint64_t bytes) {
    if (ftruncate(file_, static_cast<off_t>(bytes)) != 0) {
        cannot("written", errno);
    }
}

void ReplacementFile::finish() {
    if (fsync(file_) != 0) {
        cannot("written", errno);
    }
    if (rename(temporary_.c_str(), path_.c_str()) != 0) {
        cannot("replaced", errno);
    }
    const int closed = close(std::exchange(file_, -1)), error = errno;
    if (closed != 0) {
        cannot("written", error);
    }
    sync_folder_of(path_);
}

}  // namespace halyard::models
