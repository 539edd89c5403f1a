// Files in memory for tests of readers.
#ifndef HALYARD_TESTS_SUPPORT_GUARDED_FILE_H
#define HALYARD_TESTS_SUPPORT_GUARDED_FILE_H

#include <sys/mman.h>

#include <cstring>
#include <string>

namespace halyard::tests {

/** A file in memory that ends where the file ends: to read one byte more is a fault. */
class GuardedFile {
public:
    explicit GuardedFile(const std::string &bytes) : size_(bytes.size()), room_((size_ + 4095) / 4096 * 4096) {
        memory_ = static_cast<char *>(
            mmap(nullptr, room_ + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        mprotect(memory_ + room_, 4096, PROT_NONE);
        std::memcpy(memory_ + room_ - size_, bytes.data(), size_);
    }
    ~GuardedFile() { munmap(memory_, room_ + 4096); }
    GuardedFile(const GuardedFile &) = delete;
    GuardedFile &operator=(const GuardedFile &) = delete;

    const char *data() const { return memory_ + room_ - size_; }
    std::size_t size() const { return size_; }

private:
    std::size_t size_, room_;
    char *memory_;
};

}  // namespace halyard::tests

#endif
