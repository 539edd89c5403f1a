// The functions by which the library gets memory, between it and the C library.
#include "support/allocations.h"

#include <malloc.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

namespace {

std::atomic<long> calls{0}, bytes_asked{0}, bytes_in_use{0}, most_bytes_in_use{0};
std::atomic<long> first_refused{LONG_MAX}, end_refused{LONG_MAX};  // of the calls since `work` began
std::atomic<long> calls_of_work{0};

/** Counts a call, and says whether it is to fail. */
bool fails(std::size_t bytes) {
    calls++;
    bytes_asked += static_cast<long>(bytes);
    const long call = calls_of_work++;
    const bool refused = call >= first_refused && call < end_refused;
    if (refused) {
        errno = ENOMEM;
    }
    return refused;
}

void use(std::size_t bytes) {
    const long now = bytes_in_use += static_cast<long>(bytes);
    for (long most = most_bytes_in_use; now > most && !most_bytes_in_use.compare_exchange_weak(most, now);) {
    }
}

void *taken(void *memory) {
    use(malloc_usable_size(memory));
    return memory;
}

void given_back(void *memory) {
    bytes_in_use -= static_cast<long>(malloc_usable_size(memory));
}

std::size_t whole_pages(std::size_t bytes) {
    constexpr std::size_t page = 4096;
    return (bytes + page - 1) / page * page;
}

}  // namespace

extern "C" {
void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
int __real_posix_memalign(void **, size_t, size_t);
void *__real_aligned_alloc(size_t, size_t);
void *__real_mmap(void *, size_t, int, int, int, off_t);

void __real_free(void *);
int __real_munmap(void *, size_t);

void *__wrap_malloc(size_t bytes) {
    return fails(bytes) ? nullptr : taken(__real_malloc(bytes));
}
void *__wrap_calloc(size_t count, size_t bytes) {
    return fails(count * bytes) ? nullptr : taken(__real_calloc(count, bytes));
}
void *__wrap_realloc(void *memory, size_t bytes) {
    if (fails(bytes)) {
        return nullptr;
    }
    given_back(memory);
    return taken(__real_realloc(memory, bytes));
}
int __wrap_posix_memalign(void **memory, size_t alignment, size_t bytes) {
    if (fails(bytes)) {
        return ENOMEM;
    }
    const int error = __real_posix_memalign(memory, alignment, bytes);
    if (error == 0) {
        taken(*memory);
    }
    return error;
}
void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    return fails(bytes) ? nullptr : taken(__real_aligned_alloc(alignment, bytes));
}
void __wrap_free(void *memory) {
    given_back(memory);
    __real_free(memory);
}
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
    if (fails(bytes)) {
        return MAP_FAILED;
    }
    void *const memory = __real_mmap(at, bytes, protection, flags, file, offset);
    if (memory != MAP_FAILED) {
        use(whole_pages(bytes));
    }
    return memory;
}
int __wrap_munmap(void *memory, size_t bytes) {
    bytes_in_use -= static_cast<long>(whole_pages(bytes));
    return __real_munmap(memory, bytes);
}
}

namespace halyard::tests {

void count_allocations() {
    calls = 0;
    bytes_asked = 0;
    most_bytes_in_use = bytes_in_use.load();
}

Allocations allocations() {
    return {calls, bytes_asked, bytes_in_use, most_bytes_in_use};
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
