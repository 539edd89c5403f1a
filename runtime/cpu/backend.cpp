// The processor's table of functions, and its memory.
#include "cpu/backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/check_shapes.h"
#include "core/system/huge_pages.h"
#include "halyard/config.h"

namespace halyard {
namespace cpu {
namespace {

/** Whether ops/norm.cpp is compiled. */
constexpr bool has_norms = HALYARD_HAS_RMS_NORM || HALYARD_HAS_LAYER_NORM || HALYARD_HAS_SOFTMAX;

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

void copy(Checker &, const halyard_context &, int, const View &from, const View &to) {
    const int64_t row_axis = to.rank - 2, row_bytes = to.width() * size_of(to.dtype);
    const int64_t rows = row_count(to), rows_of_axis = to.shape[row_axis];
    const auto row_of = [&](const View &view, int64_t row) {
        const int64_t outer = row_axis > 0 ? row / rows_of_axis * view.strides[0] : 0;
        return view.data + (outer + row % rows_of_axis * view.strides[row_axis]) * size_of(view.dtype);
    };
    for (int64_t row = 0; row < rows; row++) {
        memcpy(row_of(to, row), row_of(from, row), static_cast<size_t>(row_bytes));
    }
}

void fill(Checker &, const halyard_context &, int, float *data, float value, int64_t count) {
    std::fill_n(data, count, value);
}

void prepare_rope(Checker &, const halyard_context &, int, const halyard_rope &) {}

bool capturing(Checker &, const halyard_context &, int) {
    return false;
}

ScratchMemory take_scratch(Checker &check, const halyard_context &context, int, int64_t bytes) {
    const ScratchMemory memory = context.scratch.take(bytes);
    if (!memory.data) {
        check.fail(HALYARD_OUT_OF_MEMORY, "no memory for intermediates of %lld bytes", static_cast<long long>(bytes));
    }
    return memory;
}

void give_back_scratch(const halyard_context &context, const ScratchMemory &memory) {
    context.scratch.give_back(memory);
}

}  // namespace
}  // namespace cpu

// Null where an operation was left out, whose public functions then say so (operations.cmake).
const Backend cpu_backend = {
    .elementwise = cpu::elementwise,
    .norm = cpu::has_norms ? cpu::norm : nullptr,
    .norm_backward = HALYARD_HAS_RMS_NORM_BACKWARD || HALYARD_HAS_LAYER_NORM_BACKWARD ? cpu::norm_backward : nullptr,
    .softmax = cpu::has_norms ? cpu::softmax : nullptr,
    .softmax_backward = HALYARD_HAS_SOFTMAX_BACKWARD ? cpu::softmax_backward : nullptr,
    .norm_statistics = cpu::has_norms ? cpu::norm_statistics : nullptr,
    .linear = HALYARD_HAS_LINEAR ? cpu::linear : nullptr,
    .linear_backward = HALYARD_HAS_LINEAR_BACKWARD ? cpu::linear_backward : nullptr,
    .ffn = HALYARD_HAS_FFN ? cpu::ffn : nullptr,
    .ffn_backward = HALYARD_HAS_FFN_BACKWARD ? cpu::ffn_backward : nullptr,
    .attention = HALYARD_HAS_ATTENTION ? cpu::attention : nullptr,
    .attention_backward = HALYARD_HAS_ATTENTION_BACKWARD ? cpu::attention_backward : nullptr,
    .rope = HALYARD_HAS_ROPE ? cpu::rope : nullptr,
    .kv_append = HALYARD_HAS_KV_CACHE ? cpu::kv_append : nullptr,
    .kv_read = HALYARD_HAS_KV_CACHE ? cpu::kv_read : nullptr,
    .embed = HALYARD_HAS_BLOCK ? cpu::embed : nullptr,
    .embed_backward = HALYARD_HAS_EMBEDDING_BACKWARD ? cpu::embed_backward : nullptr,
    .cross_entropy = HALYARD_HAS_CROSS_ENTROPY ? cpu::cross_entropy : nullptr,
    .dequantize = HALYARD_HAS_LINEAR ? cpu::dequantize : nullptr,
    .gradient_norm = HALYARD_HAS_GRADIENT_NORM ? cpu::gradient_norm : nullptr,
    .sgd = HALYARD_HAS_SGD ? cpu::sgd : nullptr,
    .adamw = HALYARD_HAS_ADAMW ? cpu::adamw : nullptr,
    .packed_bytes = HALYARD_HAS_LINEAR ? cpu::packed_bytes : nullptr,
    .pack = HALYARD_HAS_LINEAR ? cpu::pack : nullptr,
    .update = HALYARD_HAS_LINEAR ? cpu::update : nullptr,
    .free_weights = HALYARD_HAS_LINEAR ? cpu::free_weights : nullptr,
    .allocate = cpu::allocate,
    .free = cpu::free_memory,
    .allocate_cache = cpu::allocate_cache,
    .free_cache = cpu::free_cache,
    .convert_vectors = HALYARD_HAS_BLOCK ? cpu::convert_vectors : nullptr,
    .copy = cpu::copy,
    .fill = cpu::fill,
    .prepare_rope = cpu::prepare_rope,
    .capturing = cpu::capturing,
    .take_scratch = cpu::take_scratch,
    .give_back_scratch = cpu::give_back_scratch,
};

}  // namespace halyard
