// See plan.h.
#include "plan.h"

#include <stdexcept>

namespace halyard::bench {
namespace {

const std::vector<std::int64_t> row_counts = {1, 16, 128, 2048};
const std::vector<std::int64_t> widths = {64, 128, 768, 2048, 4096, 8192, 14336};

/** Calls on fewer elements stay on one thread, and tensors of fewer bytes are in a cache when a model meets them. */
constexpr std::int64_t least_parallel_elements = 1 << 14;
constexpr std::size_t least_cold_bytes = std::size_t{1} << 20;

bool is_possible(const Kernel &kernel, Dtype dtype) {
    return kernel.cast_to != dtype;
}

const Kernel &kernel_named(const std::string &name) {
    for (const Kernel &kernel : catalogue()) {
        if (kernel.name == name) {
            return kernel;
        }
    }
    throw std::logic_error("the quick mode names a kernel that is not there: " + name);
}

}  // namespace

std::vector<WorkId> quick_rows(int threads) {
    constexpr bool cold = true, hot = false;
    std::vector<WorkId> rows;
    const auto add = [&](const std::vector<const char *> &names, Dtype dtype, std::int64_t count, std::int64_t d,
                         bool is_cold, int thread_count) {
        for (const char *name : names) {
            rows.push_back({&kernel_named(name), dtype, count, d, is_cold, thread_count});
        }
    };
    for (const Kernel &kernel : catalogue()) {
        if (kernel.common) {
            const Dtype dtype = is_possible(kernel, Dtype::f32) ? Dtype::f32 : Dtype::bf16;
            rows.push_back({&kernel, dtype, 64, 4096, hot, threads});
        }
    }
    for (const std::int64_t d : {64, 4096}) {
        add({"rms_norm", "layer_norm", "softmax", "silu", "swiglu"}, Dtype::f32, 1, d, hot, 1);
    }
    if (threads > 1) {
        add({"rms_norm", "layer_norm", "gelu", "swiglu"}, Dtype::f32, 64, 4096, hot, 1);
    }
    add({"rms_norm", "layer_norm", "gelu", "silu", "swiglu", "softmax"}, Dtype::bf16, 64, 4096, hot, threads);
    add({"rms_norm", "swiglu"}, Dtype::f16, 64, 4096, hot, threads);
    add({"rms_norm", "layer_norm"}, Dtype::f32, 2048, 768, hot, threads);
    add({"swiglu"}, Dtype::f32, 16, 14336, hot, threads);
    add({"rms_norm", "layer_norm", "add_rms_norm", "softmax", "gelu", "gelu_tanh", "silu", "swiglu", "add"}, Dtype::f32,
        2048, 8192, cold, threads);
    add({"rms_norm", "gelu", "silu", "swiglu"}, Dtype::bf16, 2048, 8192, cold, threads);
    return rows;
}

std::vector<WorkId> full_rows(int threads) {
    // The quick rows come first: the shapes that bars are set for are not all in the grid.
    std::vector<WorkId> rows = quick_rows(threads);
    for (const Kernel &kernel : catalogue()) {
        if (is_possible(kernel, Dtype::f32)) {
            rows.push_back({&kernel, Dtype::f32, 2048, 8192, true, threads});
        }
    }
    for (const Kernel &kernel : catalogue()) {
        for (const Dtype dtype : tests::all_dtypes) {
            for (const std::int64_t count : row_counts) {
                for (const std::int64_t d : widths) {
                    for (const bool cold : {false, true}) {
                        for (const int thread_count : {1, threads}) {
                            const WorkId id{&kernel, dtype, count, d, cold, thread_count};
                            if (is_possible(kernel, dtype) &&
                                (thread_count == 1 || count * d >= least_parallel_elements) &&
                                (!cold || id.bytes_moved() >= least_cold_bytes)) {
                                rows.push_back(id);
                            }
                        }
                    }
                }
            }
        }
    }
    return rows;
}

}  // namespace halyard::bench
