// See replace_file.h.
#include "replace_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace halyard::bench {
namespace {

/** A file that is to be written, by its name or where a link of that name leads. */
struct Target {
    std::string file, unfinished;
    bool is_device = false;  // a terminal or the like, which is written to and not replaced

    explicit Target(const std::string &name) {
        std::error_code error;
        const std::filesystem::path path = std::filesystem::weakly_canonical(name, error);
        file = error ? name : path.string();
        unfinished = file + "." + std::to_string(getpid()) + ".part";  // others may write the same file
        struct stat status {};
        is_device = stat(file.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
    }
    /** What a killed process left goes; a file or link of somebody else is not written to. */
    FILE *open() const {
        if (is_device) {
            return std::fopen(file.c_str(), "we");
        }
        unlink(unfinished.c_str());
        return std::fopen(unfinished.c_str(), "wxe");
    }
    [[noreturn]] void fail(int error) const {
        if (!is_device) {
            unlink(unfinished.c_str());
        }
        throw std::runtime_error("cannot write '" + file + "': " + std::strerror(error));
    }
};

/** 0 or the error. */
int write_all(FILE *file, const std::string &text) {
    const bool is_written = std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0 &&
                            (fsync(fileno(file)) == 0 || errno == EINVAL);  // devices have nothing to wait for
    const int error = is_written ? 0 : errno;
    return std::fclose(file) != 0 && is_written ? errno : error;
}

}  // namespace

void replace_file(const std::string &name, const std::string &text) {
    const Target target(name);
    FILE *const file = target.open();
    int error = file != nullptr ? write_all(file, text) : errno;
    if (error == 0 && !target.is_device && std::rename(target.unfinished.c_str(), target.file.c_str()) != 0) {
        error = errno;
    }
    if (error != 0) {
        target.fail(error);
    }
}

void require_replaceable(const std::string &name) {
    const Target target(name);
    if (std::filesystem::is_directory(target.file)) {
        target.fail(EISDIR);
    }
    if (!target.is_device) {
        FILE *const file = target.open();
        if (file == nullptr) {
            target.fail(errno);
        }
        std::fclose(file);
        unlink(target.unfinished.c_str());
    }
}

}  // namespace halyard::bench
