// Files of packed weights.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "weights_block.h"

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

/** Makes a rename in the directory of `path` outlast a crash of the system, where the file system can. */
void sync_directory(char *path) {
    char *slash = strrchr(path, '/');
    if (slash) {
        slash[slash == path ? 1 : 0] = '\0';
    }
    const int directory = open(slash ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory >= 0) {
        fsync(directory);
        close(directory);
    }
}

/** Replaces the file `path` by one with these bytes; an errno, or 0. `temporary` has room for `room` characters. */
int replace_file(const char *path, char *temporary, size_t room, const char *data, int64_t bytes) {
    static std::atomic<unsigned> counter{0};
    constexpr int attempts = 100;  // names left behind by processes that were killed may be in the way
    int file = -1;
    for (int i = 0; i < attempts && file < 0; i++) {
        snprintf(temporary, room, "%s.%ld.%u.tmp", path, static_cast<long>(getpid()), counter.fetch_add(1));
        file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file < 0 && errno != EEXIST) {
            return errno;
        }
    }
    if (file < 0) {
        return EEXIST;
    }
    int error = write_all(file, data, bytes);
    if (close(file) != 0 && error == 0) {
        error = errno;
    }
    if (error == 0 && rename(temporary, path) != 0) {
        error = errno;
    }
    if (error != 0) {
        unlink(temporary);
    }
    return error;
}

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
    const size_t room = strlen(path) + 64;
    char *temporary = static_cast<char *>(malloc(room));
    if (!temporary) {
        return check.fail(HALYARD_OUT_OF_MEMORY, "no memory for the name of a temporary file");
    }
    const int error = halyard::replace_file(path, temporary, room, weights->block, weights->bytes);
    if (error != 0) {
        check.fail(HALYARD_INVALID_ARGUMENT, "path cannot be written (%s): %s", strerror(error), path);
    } else {
        halyard::sync_directory(temporary);
    }
    free(temporary);
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
    Geometry geometry = {};
    if (!check.failed()) {
        check_block(check, "the file at path", file.data(), file.bytes(), geometry);
    }
    if (check.failed()) {
        return check.status();
    }
    halyard_weights *handle = new_handle();
    if (!handle) {
        return check.fail(HALYARD_OUT_OF_MEMORY, "no memory for a handle");
    }
    view_block(*handle, file.data(), geometry);
    file.give_to(*handle);
    *weights = handle;
    return HALYARD_OK;
}
