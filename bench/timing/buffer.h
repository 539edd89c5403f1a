// Memory of tensors: aligned to a cache line, touched before use, and on huge pages where the system gives them, as the peers' is
// (peers/process.cpp). How ordinary pages happen to lie makes a call up to half as long again.
#ifndef HALYARD_BENCH_TIMING_BUFFER_H
#define HALYARD_BENCH_TIMING_BUFFER_H

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

namespace halyard::bench {

class Buffer {
public:
    explicit Buffer(std::size_t bytes) : memory(allocate(bytes)), length(bytes) { std::memset(memory.get(), 0, bytes); }
    char *data() const { return memory.get(); }
    std::size_t size() const { return length; }

private:
    static constexpr std::size_t page = std::size_t{2} << 20;

    static std::size_t rounded_up(std::size_t bytes, std::size_t multiple) {
        return (bytes + multiple - 1) / multiple * multiple;
    }
    static std::shared_ptr<char> pages_of(std::size_t bytes) {
        const std::size_t whole = rounded_up(bytes, page);
        const std::shared_ptr<char> pages(static_cast<char *>(std::aligned_alloc(page, whole)), std::free);
        if (pages == nullptr) {
            throw std::bad_alloc();
        }
        madvise(pages.get(), whole, MADV_HUGEPAGE);  // advice: without it the memory is as good, only slower
        return pages;
    }
    /** Small tensors share a page, which goes when the last of them does. */
    static std::shared_ptr<char> allocate(std::size_t bytes) {
        static thread_local std::shared_ptr<char> shared;
        static thread_local std::size_t used = page;
        const std::size_t whole = rounded_up(bytes, 64);
        if (whole >= page) {
            return pages_of(bytes);
        }
        if (used + whole > page) {
            shared = pages_of(page);
            used = 0;
        }
        used += whole;
        return {shared, shared.get() + used - whole};
    }

    std::shared_ptr<char> memory;
    std::size_t length;
};

}  // namespace halyard::bench

#endif
