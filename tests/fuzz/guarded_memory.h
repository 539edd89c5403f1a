// Pieces of memory with pages on both sides that nobody may touch: an access beyond a piece ends the program, in kernels
// too, which no sanitizer instruments.
#ifndef HALYARD_TESTS_FUZZ_GUARDED_MEMORY_H
#define HALYARD_TESTS_FUZZ_GUARDED_MEMORY_H

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>

namespace halyard::tests {

template<int count, std::size_t bytes>
class GuardedMemory {
    static constexpr std::size_t page = 4096, pitch = bytes + page;
    static_assert(bytes % page == 0, "pieces are whole pages");

public:
    static constexpr int pieces = count;
    static constexpr std::size_t piece_bytes = bytes;

    GuardedMemory() {
        void *block = mmap(nullptr, page + pitch * count, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED) {
            std::abort();
        }
        first_ = static_cast<char *>(block) + page;
        for (int i = 0; i < count; i++) {
            if (mprotect(begin(i), bytes, PROT_READ | PROT_WRITE) != 0) {
                std::abort();
            }
        }
    }

    char *begin(int piece) const { return first_ + pitch * static_cast<std::size_t>(piece); }
    char *end(int piece) const { return begin(piece) + bytes; }

private:
    char *first_;
};

}  // namespace halyard::tests

#endif
