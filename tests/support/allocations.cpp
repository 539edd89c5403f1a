// The functions by which the library gets memory, between it and the C library.
#include "support/allocations.h"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

namespace {

std::atomic<long> calls{0}, bytes_asked{0};
std::atomic<long> first_refused{LONG_MAX}, end_refused{LONG_MAX};  // of the calls since `work` began
std::atomic<long> calls_of_work{0};

/** Counts a call, and says whether it is to fail. */
bool fails(std::size_t bytes) {
    calls++;
    bytes_asked += static_cast<long>(bytes);
    const long call = calls_of_work++;
    return call >= first_refused && call < end_refused;
}

}  // namespace

extern "C" {
void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
int __real_posix_memalign(void **, size_t, size_t);
void *__real_aligned_alloc(size_t, size_t);
void *__real_mmap(void *, size_t, int, int, int, off_t);

void *__wrap_malloc(size_t bytes) {
    return fails(bytes) ? nullptr : __real_malloc(bytes);
}
void *__wrap_calloc(size_t count, size_t bytes) {
    return fails(count * bytes) ? nullptr : __real_calloc(count, bytes);
}
void *__wrap_realloc(void *memory, size_t bytes) {
    return fails(bytes) ? nullptr : __real_realloc(memory, bytes);
}
int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes) {
    return fails(bytes) ? ENOMEM : __real_posix_memalign(memory, alignment, bytes);
}
void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    return fails(bytes) ? nullptr : __real_aligned_alloc(alignment, bytes);
}
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
    return fails(bytes) ? MAP_FAILED : __real_mmap(at, bytes, protection, flags, file, offset);
}
}

namespace halyard::tests {

void count_allocations() {
    calls = 0;
    bytes_asked = 0;
}

Allocations allocations() {
    return {calls, bytes_asked};
}

bool refuse_allocations(long after, long count, void (*work)(void *), void *argument) {
    calls_of_work = 0;
    first_refused = after;
    end_refused = count == LONG_MAX ? LONG_MAX : after + count;
    work(argument);
    first_refused = LONG_MAX;
    return calls_of_work > after;
}

}  // namespace halyard::tests
