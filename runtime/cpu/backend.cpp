// The processor's table of functions, and its memory.
#include "cpu/backend.h"

#include <sys/mman.h>

#include <cstdlib>

#include "core/system/huge_pages.h"

namespace halyard {
namespace {

char *allocate(Checker &check, int, int64_t bytes, const char *what) {
    constexpr int64_t cache_line = 64;
    void *memory = nullptr;
    if (posix_memalign(&memory, cache_line, static_cast<size_t>(std::max(bytes, cache_line))) != 0) {
        check.fail(HALYARD_OUT_OF_MEMORY, "no memory for %lld bytes of %s", static_cast<long long>(bytes), what);
        return nullptr;
    }
    return static_cast<char *>(memory);
}

void free_memory(int, void *memory) {
    free(memory);
}

char *allocate_cache(Checker &check, int, int64_t bytes) {
    char *const memory = map_pages(bytes, false);
    if (!memory) {
        check.fail(HALYARD_OUT_OF_MEMORY, "no memory for a cache of %lld bytes", static_cast<long long>(bytes));
    }
    return memory;
}

void free_cache(int, char *memory, int64_t bytes) {
    munmap(memory, bytes);
}

}  // namespace

const Backend cpu_backend = {
    cpu::elementwise,  cpu::norm, cpu::softmax,   cpu::norm_statistics, cpu::linear,       cpu::ffn,
    cpu::attention,    cpu::rope, cpu::kv_append, cpu::kv_read,         cpu::packed_bytes, cpu::pack,
    cpu::free_weights, allocate,  free_memory,    allocate_cache,       free_cache,        nullptr,
    nullptr,           nullptr,   nullptr};

}  // namespace halyard
