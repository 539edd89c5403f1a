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
    for (const auto *kernels : {&catalogue(), &layer_catalogue(), &transformer_catalogue()}) {
        for (const Kernel &kernel : *kernels) {
            if (kernel.name == name) {
                return kernel;
            }
        }
    }
    throw std::logic_error("the plan names a kernel that is not there: " + name);
}

// ---- Layers ----

/** A published model: its widths, and the kernels that its layers are. */
struct Model {
    std::int64_t d, d_ff, projection;  // `projection`: the width of the outputs of attention on one machine
    const char *up, *down, *ffn, *block;
};
const Model gpt2 = {768,
                    3072,
                    768,
                    "linear_bias_gelu_tanh",
                    "linear_bias_residual",
                    "ffn_gelu_tanh",
                    "layer_norm_ffn_gelu_tanh_residual"};
const Model llama2_7b = {4096, 11008, 4096, "linear_swiglu", "linear", "ffn_swiglu", "rms_norm_ffn_swiglu_residual"};
const Model llama3_8b = {4096, 14336, 4096, "linear_swiglu", "linear", "ffn_swiglu", "rms_norm_ffn_swiglu_residual"};
const Model qwen25_7b = {3584, 18944, 3584, "linear_swiglu", "linear", "ffn_swiglu", "rms_norm_ffn_swiglu_residual"};
const Model gemma2_2b = {2304, 9216, 2304, "linear_geglu_tanh", "linear", "ffn_geglu_tanh", nullptr};
const Model llama_70b_eighth = {
    8192, 3584, 1024, "linear_swiglu", "linear", "ffn_swiglu", "rms_norm_ffn_swiglu_residual"};

const std::vector<std::int64_t> layer_row_counts = {1, 2, 4, 8, 16, 32, 64, 128, 512};

/** All rows of one model: its projections without and with what follows them, its FFN, its FFN with norm and residual.
 */
void append_model(std::vector<WorkId> &rows, const Model &model, Dtype dtype, int thread_count) {
    const std::string deferred = std::string(model.block != nullptr ? model.block : "") + ".deferred";
    const struct {
        const char *kernel;
        std::int64_t d, d_out;
    } layers[] = {
        {"linear", model.d, model.d_ff},
        {"linear", model.d_ff, model.d},
        {"linear", model.d, model.projection},
        {model.up, model.d, model.d_ff},
        {model.down, model.d_ff, model.d},
        {model.ffn, model.d, model.d_ff},
        {model.block, model.d, model.d_ff},
        {model.block != nullptr ? deferred.c_str() : nullptr, model.d, model.d_ff},
    };
    for (const auto &layer : layers) {
        for (const bool cold : {false, true}) {
            for (const std::int64_t count : layer_row_counts) {
                if (layer.kernel != nullptr) {
                    rows.push_back(
                        {&kernel_named(layer.kernel), dtype, count, layer.d, cold, thread_count, layer.d_out});
                }
            }
        }
    }
}

void append_layers(std::vector<WorkId> &rows, int threads) {
    for (const Model &model : {gpt2, llama2_7b, llama3_8b, qwen25_7b, gemma2_2b, llama_70b_eighth}) {
        for (const int thread_count : {threads, 1}) {
            append_model(rows, model, Dtype::f32, thread_count);
        }
        append_model(rows, model, Dtype::bf16, threads);
    }
    append_model(rows, llama2_7b, Dtype::f16, threads);
}

// ---- Attention, blocks, models ----

/** Empty if what a contender holds is at most a `share`-th of the memory. */
std::string memory_error(std::size_t bytes, std::size_t share, const Machine &machine) {
    if (bytes <= machine.memory / share) {
        return {};
    }
    return "it takes " + readable_bytes(static_cast<double>(bytes)) + " for each contender, more than 1/" +
           std::to_string(share) + " of this machine's memory";
}

/** The row of `count` tokens of one sequence, or with `cached` of one token of each of `count` sequences. */
WorkId transformer_row(const Kernel &kernel, Dtype dtype, std::int64_t count, std::int64_t cached, bool is_cold,
                       int threads) {
    const std::int64_t d = kernel.attention ? kernel.attention->query_width() : kernel.block->d;
    return {&kernel, dtype, count, d, is_cold, threads, 0, cached};
}

/** A prompt's queries, keys and values have just been computed; what is decoded comes after all other layers. Blocks
 * and models find their matrices out of cache, but for GPT-2, one of whose blocks may be in it. */
void append_transformers(std::vector<WorkId> &rows, int threads) {
    for (const Kernel &kernel : transformer_catalogue()) {
        for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
            const auto add = [&](std::int64_t count, std::int64_t cached, bool is_cold) {
                rows.push_back(transformer_row(kernel, dtype, count, cached, is_cold, threads));
            };
            if (kernel.block && kernel.block->is_model()) {
                add(128, 0, true);
                add(512, 0, true);
                add(1, 128, true);
                continue;
            }
            const bool fits = kernel.block && kernel.block->d <= 1024;
            for (const std::int64_t tokens : {128, 512, 2048}) {
                add(tokens, 0, kernel.block.has_value());
                if (fits) {
                    add(tokens, 0, false);
                }
            }
            for (const std::int64_t sequences : {1, 8}) {
                for (const std::int64_t cached : {128, 1024, 8192}) {
                    add(sequences, cached, true);
                    if (fits) {
                        add(sequences, cached, false);
                    }
                }
            }
        }
    }
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

    const auto add_layer = [&](const char *name, Dtype dtype, std::int64_t count, bool is_cold) {
        rows.push_back({&kernel_named(name), dtype, count, llama2_7b.d, is_cold, threads, llama2_7b.d_ff});
    };
    for (const std::int64_t count : {1, 8, 128}) {
        add_layer("linear", Dtype::f32, count, hot);
    }
    add_layer("linear", Dtype::f32, 1, cold);
    add_layer("linear", Dtype::bf16, 1, cold);
    add_layer("ffn_swiglu", Dtype::f32, 8, hot);

    const auto add_transformer = [&](const char *name, Dtype dtype, std::int64_t count, std::int64_t cached,
                                     bool is_cold) {
        rows.push_back(transformer_row(kernel_named(name), dtype, count, cached, is_cold, threads));
    };
    add_transformer("attention.32x128", Dtype::f32, 512, 0, hot);
    add_transformer("attention.32x128", Dtype::f32, 1, 8192, cold);
    add_transformer("attention.32-8x128", Dtype::bf16, 1, 8192, cold);
    add_transformer("block.gpt2", Dtype::f32, 128, 0, hot);
    add_transformer("block.gpt2", Dtype::f32, 1, 128, hot);
    return rows;
}

std::vector<WorkId> full_rows(int threads) {
    // The quick rows come first: the shapes that bars are set for are not all in the grid.
    std::vector<WorkId> rows = quick_rows(threads);
    append_layers(rows, threads);
    append_transformers(rows, threads);
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

std::string too_large(const WorkId &row, const Machine &machine) {
    if (!row.has_roofline()) {
        return {};
    }
    if (row.kernel->layer) {
        // Up to five contenders hold matrices of their own, one of them in f32 whatever the row's type.
        WorkId in_f32 = row;
        in_f32.dtype = Dtype::f32;
        return memory_error(in_f32.weight_bytes() * in_f32.set_count(0), 8, machine);
    }
    // Models come two at a time. Of blocks there are three, and while a cache is filled its keys and values twice.
    return memory_error(row.bytes_moved() * row.set_count(machine.cold_set()), row.is_model() ? 4 : 6, machine);
}

}  // namespace halyard::bench
