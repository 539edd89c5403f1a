// See replace_file.h.
#include "replace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace halyard::bench {
namespace {

/** Where a link leads. */
std::string resolved(const std::string &file) {
    std::error_code error;
    const std::filesystem::path path = std::filesystem::weakly_canonical(file, error);
    return error ? file : path.string();
}

std::string unfinished(const std::string &file) {
    return file + "." + std::to_string(getpid()) + ".part";  // others may write the same file
}

[[noreturn]] void fail(const std::string &file) {
    const int error = errno;
    unlink(unfinished(file).c_str());
    throw std::runtime_error("cannot write '" + file + "': " + std::strerror(error));
}

/** What a killed process left goes; a file or link of somebody else is not written to. */
int open_unfinished(const std::string &file) {
    unlink(unfinished(file).c_str());
    const int descriptor = open(unfinished(file).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0) {
        fail(file);
    }
    return descriptor;
}

/** A terminal or the like, which is written to and not replaced. */
bool is_device(const std::string &file) {
    struct stat status {};
    return stat(file.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

bool write_all(int descriptor, const std::string &text) {
    for (std::size_t written = 0; written < text.size();) {
        const ssize_t count = write(descriptor, text.data() + written, text.size() - written);
        if (count < 0 && errno != EINTR) {
            return false;
        }
        written += count > 0 ? static_cast<std::size_t>(count) : 0;
    }
    return fsync(descriptor) == 0 || errno == EINVAL;  // devices have nothing to wait for
}

}  // namespace

void replace_file(const std::string &name, const std::string &text) {
    const std::string file = resolved(name);
    const bool in_place = is_device(file);
    const int descriptor = in_place ? open(file.c_str(), O_WRONLY | O_CLOEXEC) : open_unfinished(file);
    if (descriptor < 0) {
        fail(file);
    }
    const bool is_written = write_all(descriptor, text);
    const int error = errno;
    if (close(descriptor) != 0 || !is_written) {
        errno = is_written ? errno : error;
        fail(file);
    }
    if (!in_place && std::rename(unfinished(file).c_str(), file.c_str()) != 0) {
        fail(file);
    }
}

void require_replaceable(const std::string &name) {
    const std::string file = resolved(name);
    if (std::filesystem::is_directory(file)) {
        errno = EISDIR;
        fail(file);
    }
    if (!is_device(file)) {
        close(open_unfinished(file));
        unlink(unfinished(file).c_str());
    }
}

}  // namespace halyard::bench
