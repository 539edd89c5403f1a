// Memory as malloc would give it to a user: aligned to a cache line, ordinary pages, touched before use.
#ifndef HALYARD_BENCH_BUFFER_H
#define HALYARD_BENCH_BUFFER_H

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace halyard::bench {

class Buffer {
public:
    explicit Buffer(std::size_t bytes)
        : memory(static_cast<char *>(std::aligned_alloc(64, (bytes + 63) / 64 * 64))), length(bytes) {
        if (memory == nullptr) {
            throw std::bad_alloc();
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
