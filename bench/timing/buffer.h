// Memory as malloc would give it to a user: aligned to a cache line, ordinary pages unless said, touched before use.
#ifndef HALYARD_BENCH_TIMING_BUFFER_H
#define HALYARD_BENCH_TIMING_BUFFER_H

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace halyard::bench {

/** `huge`: on huge pages where the system gives them, as the library's packed weights and caches are. */
enum class Pages { ordinary, huge };

class Buffer {
public:
    explicit Buffer(std::size_t bytes, Pages pages = Pages::ordinary) : length(bytes) {
        const std::size_t alignment = pages == Pages::huge ? std::size_t{2} << 20 : 64;
        const std::size_t whole = (bytes + alignment - 1) / alignment * alignment;
        memory.reset(static_cast<char *>(std::aligned_alloc(alignment, whole)));
        if (memory == nullptr) {
            throw std::bad_alloc();
        }
        if (pages == Pages::huge) {
            madvise(memory.get(), whole, MADV_HUGEPAGE);  // advice: without it the memory is as good, only slower
        }
        std::memset(memory.get(), 0, bytes);
    }
    char *data() const { return memory.get(); }
    std::size_t size() const { return length; }

private:
    struct Free {
        void operator()(char *p) const { std::free(p); }
    };
    std::unique_ptr<char, Free> memory;
    std::size_t length;
};

}  // namespace halyard::bench

#endif
