// Files of packed weights.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "core/handles/packed_weights.h"

namespace halyard {
namespace {

/** A file's contents, mapped as long as this lives. */
class MappedFile {
public:
    MappedFile(Checker &check, const char *path) {
        // Opening a pipe must not wait for a writer.
        const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (file < 0) {
            check.fail(HALYARD_INVALID_ARGUMENT, "path cannot be opened for reading (%s): %s", strerror(errno), path);
            return;
        }
        struct stat status;
        if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
            check.fail(HALYARD_INVALID_ARGUMENT, "path is not the name of a regular file: %s", path);
        } else if (status.st_size > 0) {
            void *memory = mmap(nullptr, status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
            if (memory == MAP_FAILED) {
                check.fail(errno == ENOMEM ? HALYARD_OUT_OF_MEMORY : HALYARD_INVALID_ARGUMENT,
                           "path cannot be mapped (%s): %s", strerror(errno), path);
            } else {
                data_ = memory;
                bytes_ = status.st_size;
                madvise(data_, bytes_, MADV_WILLNEED);
            }
        }
        close(file);
    }
    ~MappedFile() {
        if (data_) {
            munmap(data_, bytes_);
        }
    }
    MappedFile(const MappedFile &) = delete;
    MappedFile &operator=(const MappedFile &) = delete;

    const char *data() const { return static_cast<const char *>(data_); }
    int64_t bytes() const { return bytes_; }

    /** Leaves the mapping to the handle. */
    void give_to(halyard_weights &weights) {
        weights.owner = halyard_weights::Owner::mapping;
        weights.mapped = data_;
        weights.mapped_bytes = bytes_;
        data_ = nullptr;
    }

private:
    void *data_ = nullptr;
    int64_t bytes_ = 0;
};

// ---- Writing files ----

/** Writes everything, and to the disk; an errno, or 0. */
int write_all(int file, const char *data, int64_t bytes) {
    constexpr int64_t most = 1 << 30;  // Linux writes 2 GiB at a time at most
    while (bytes > 0) {
        const ssize_t written = write(file, data, std::min(bytes, most));
        if (written < 0 && errno != EINTR) {
            return errno;
        }
        if (written > 0) {
            data += written;
            bytes -= written;
        }
    }
    return fsync(file) == 0 ? 0 : errno;
}

/** A file that is written under a name of its own in the directory of `path`, and then replaces that. */
class Replacement {
public:
    /** `name` has room for path_room(path) characters. */
    Replacement(const char *path, char *name) : path_(path), name_(name) {
        const char *const slash = strrchr(path, '/');
        directory_bytes_ = slash ? slash + 1 - path : 0;
        memcpy(name, path, directory_bytes_);
    }
    static size_t path_room(const char *path) { return strlen(path) + 64; }

    /** An errno, or 0. `old`: what is at `path`, or null. */
    int write(const struct stat *old, const char *data, int64_t bytes) {
        const int file = create(old ? 0600 : 0666);
        if (file < 0) {
            return errno;
        }
        int error = old ? take_over_mode(file, *old) : 0;
        if (error == 0) {
            error = write_all(file, data, bytes);
        }
        if (close(file) != 0 && error == 0) {
            error = errno;
        }
        if (error == 0 && rename(name_, path_) != 0) {
            error = errno;
        }
        if (error != 0) {
            unlink(name_);
        }
        return error;
    }

    /** Makes the rename outlast a crash of the system, where the file system can. */
    void sync_directory() {
        name_[directory_bytes_] = '\0';
        const int directory = open(directory_bytes_ > 0 ? name_ : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (directory >= 0) {
            fsync(directory);
            close(directory);
        }
    }

private:
    /** A new file, short of name however long that of `path` is; -1 and errno if there can be none. */
    int create(mode_t mode) {
        constexpr int attempts = 100;  // another's file may have the name
        int file = -1;
        for (int i = 0; i < attempts && file < 0; i++) {
            timespec now;
            clock_gettime(CLOCK_REALTIME, &now);
            snprintf(name_ + directory_bytes_, 64, ".halyard-%ld-%09ld", static_cast<long>(getpid()), now.tv_nsec);
            file = open(name_, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
            if (file < 0 && errno != EEXIST) {
                break;
            }
        }
        return file;
    }

    static int take_over_mode(int file, const struct stat &old) {
        mode_t mode = old.st_mode & 07777;
        // Owner and group stay where the system allows it; another group is not given what that one was.
        if (fchown(file, old.st_uid, old.st_gid) != 0 && fchown(file, -1, old.st_gid) != 0) {
            mode &= ~S_IRWXG;
        }
        return fchmod(file, mode) == 0 ? 0 : errno;
    }

    const char *path_;
    char *name_;
    size_t directory_bytes_;
};

}  // namespace
}  // namespace halyard

using halyard::Checker;

halyard_status halyard_weights_save(const halyard_weights *weights, const char *path) {
    Checker check("halyard_weights_save");
    check.not_null("weights", weights);
    if (!check.not_null("path", path)) {
        return check.status();
    }
    if (weights->on_cuda) {
        return check.fail(HALYARD_UNSUPPORTED,
                          "weights is on CUDA device %d, whose form is for that device alone: save what was packed "
                          "for processors",
                          weights->device_id);
    }
    struct stat old;
    const bool exists = lstat(path, &old) == 0;
    if (exists && !S_ISREG(old.st_mode)) {
        return check.fail(HALYARD_INVALID_ARGUMENT, "path is %s, and only a regular file is replaced: %s",
                          S_ISLNK(old.st_mode)   ? "a symbolic link"
                          : S_ISDIR(old.st_mode) ? "a directory"
                                                 : "a pipe, socket or device",
                          path);
    }
    char *name = static_cast<char *>(malloc(halyard::Replacement::path_room(path)));
    if (!name) {
        return check.fail(HALYARD_OUT_OF_MEMORY, "no memory for the name of a temporary file");
    }
    halyard::Replacement replacement(path, name);
    const int error = replacement.write(exists ? &old : nullptr, weights->block, weights->bytes);
    if (error != 0) {
        check.fail(HALYARD_INVALID_ARGUMENT, "path cannot be written (%s): %s", strerror(error), path);
    } else {
        replacement.sync_directory();
    }
    free(name);
    return check.status();
}

halyard_status halyard_weights_load(const char *path, halyard_weights **weights) {
    using namespace halyard;
    Checker check("halyard_weights_load");
    check.not_null("path", path);
    if (!check.not_null("weights", weights)) {
        return check.status();
    }
    MappedFile file(check, path);
    if (check.failed()) {
        return check.status();
    }
    if (halyard_weights *const handle = weights_of_block(check, "the file at path", file.data(), file.bytes())) {
        if (handle->owner == halyard_weights::Owner::caller) {
            file.give_to(*handle);
        }
        *weights = handle;
    }
    return check.status();
}
