// See case_families.h.
#include "case_families.h"

#include <cstring>
#include <initializer_list>
#include <map>
#include <stdexcept>
#include <tuple>

#include "bench/cases/attention.h"
#include "halyard/attention.h"

namespace halyard::tune {
namespace {

using bench::BenchmarkCase;
using bench::CaseId;
using bench::HeadsView;
using bench::OperandSet;

void require(halyard_status status) {
    if (status != HALYARD_OK) {
        throw std::runtime_error(halyard_last_error());
    }
}

CaseFamily family_of(bench::Kernel kernel) {
    CaseFamily family;
    family.kernel = std::move(kernel);
    return family;
}

template<typename Call>
CaseFamily family_of(const char *name, const Call &call) {
    bench::Kernel kernel;
    kernel.name = kernel.operation = name;
    kernel.call = call;
    return family_of(std::move(kernel));
}

// ---- activations and epilogues ----

/** Swish with a beta that has no kernels of its own. */
constexpr float general_beta = 1.25f;

CaseFamily with_general_beta(const std::string &label) {
    const operations::Operation &operation = operations::operation(label);
    std::vector<double> scalars = operation.scalar_values();
    scalars.back() = general_beta;
    CaseFamily family = family_of(bench::tensor_kernel(operation, std::move(scalars)));
    family.kernel.name += ".general";
    return family;
}

CaseFamily layer_with(const operations::LayerActivation &activation, bool gated) {
    bench::LayerForm form;
    form.gated = gated;
    form.activation = activation.value;
    form.beta = general_beta;
    return family_of(
        bench::layer_kernel(std::string("linear_") + activation.name + (gated ? "_gated" : "") + ".epilogue", form));
}

// ---- statistics of rows ----

/** They go to the first row of the outputs. */
template<typename Call>
CaseFamily statistics(const char *name, const Call &call) {
    CaseFamily family = family_of(name, [call](BenchmarkCase &bench_case, OperandSet &set) {
        std::int64_t rows = bench_case.id.rows;
        DLTensor vectors[2] = {set.outputs[0].view, set.outputs[1].view};
        for (DLTensor &vector : vectors) {
            vector.ndim = 1;
            vector.shape = &rows;
        }
        return call(bench_case.context.get(), &set.inputs[0].view, &vectors[0], &vectors[1]);
    });
    family.kernel.cast_to = bench::Dtype::f32;
    family.kernel.outputs = 2;
    return family;
}

// ---- packing ----

/** Of a matrix [rows, d] or, [in, out], its transpose; folded with the norm's weight. That is d long: a folded transpose has no
 *  more rows than columns. */
CaseFamily packing(const char *name, halyard_weight_layout layout, bool folded) {
    using Memory = std::map<const OperandSet *, std::unique_ptr<bench::Matrix>>;
    const auto packed = std::make_shared<Memory>();  // of each operand set; one case packs at a time
    CaseFamily family = family_of(name, [layout, folded, packed](BenchmarkCase &bench_case, OperandSet &set) {
        halyard_pack_options options{};
        options.layout = layout;
        std::int64_t inputs = layout == HALYARD_WEIGHT_OUT_IN ? bench_case.id.d : bench_case.id.rows;
        DLTensor norm_weight{};
        if (folded) {
            norm_weight = bench_case.weight->view;
            norm_weight.shape = &inputs;
            options.norm_weight = &norm_weight;
        }
        std::int64_t bytes = 0;
        const halyard_status status = halyard_weights_size(&set.inputs[0].view, &options, &bytes);
        if (status != HALYARD_OK) {
            return status;
        }
        const std::int64_t floats = (bytes + 3) / 4;
        if (packed->count(&set) != 0 && packed->at(&set)->width() != floats) {
            packed->clear();  // of another case
        }
        std::unique_ptr<bench::Matrix> &place = (*packed)[&set];
        if (place == nullptr) {
            place = std::make_unique<bench::Matrix>(bench::Dtype::f32, 1, floats);
        }
        halyard_weights *weights = nullptr;
        const halyard_status done = halyard_weights_pack(bench_case.context.get(), &set.inputs[0].view, &options,
                                                         place->data(), bytes, &weights);
        halyard_weights_destroy(weights);
        return done;
    });
    family.kernel.has_weight = folded;
    // The panels come last in the packed form.
    family.finish = [packed](BenchmarkCase &bench_case) {
        const bench::Matrix &from = *packed->at(&bench_case.sets[0]), &to = bench_case.sets[0].outputs[0];
        std::memcpy(to.data(), from.data() + from.bytes() - to.bytes(), to.bytes());
        std::memset(from.data(), 0xff, from.bytes());  // so that nothing passes that is not written again
    };
    return family;
}

// ---- attention ----

/** Two blocks of keys in part, so that some are merged, and softmax with a mask and without. */
CaseFamily small_attention(double softcap) {
    constexpr bench::HeadShape small_heads{2, 2, 16};
    constexpr std::int64_t timed_tokens = 1024, two_blocks = 600;
    const std::int64_t width = small_heads.query_width();
    CaseFamily family = family_of(bench::make_attention(small_heads, softcap));
    family.own =
        OwnShapes{{{two_blocks, width}}, {{1, width}, {67, width}, {two_blocks, width}}, [width](const Shape &shape) {
                      return shape.cold ? std::nullopt : std::make_optional(RowsAndWidth{timed_tokens, width});
                  }};
    return family;
}

/** Heads of 128 features as most models have them; three of a width that is no multiple of that. */
constexpr std::int64_t usual_head_dim = 128, odd_heads = 3;

std::int64_t head_dim_of(const CaseId &id) {
    return id.d % usual_head_dim == 0 ? usual_head_dim : id.d / odd_heads;
}

/** Rows of a matrix as heads. */
struct Heads : HeadsView {
    Heads(const BenchmarkCase &of, const bench::Matrix &matrix)
        : HeadsView(matrix, 1, of.id.d / head_dim_of(of.id), head_dim_of(of.id)) {}
};

/** Rows as a shape has them, of whole heads. */
OwnShapes shapes_of_heads(std::vector<RowsAndWidth> checks) {
    return {{{32, usual_head_dim}}, std::move(checks), [](const Shape &shape) {
                const std::int64_t heads = (shape.d + usual_head_dim - 1) / usual_head_dim;
                return std::make_optional(RowsAndWidth{shape.rows, heads * usual_head_dim});
            }};
}

/** A table for as many positions as the case has rows. */
const halyard_rope *rope_of(const CaseId &id, bool interleaved) {
    static std::map<std::tuple<std::int64_t, std::int64_t, bool>, std::shared_ptr<halyard_rope>> all;
    std::shared_ptr<halyard_rope> &rope = all[{head_dim_of(id), id.rows, interleaved}];
    if (rope == nullptr) {
        halyard_rope_options options{};
        options.head_dim = head_dim_of(id);
        options.max_positions = id.rows;
        options.rope_theta = 10000;
        options.interleaved = interleaved ? 1 : 0;
        halyard_rope *made = nullptr;
        require(halyard_rope_create(&options, &made));
        rope.reset(made, halyard_rope_destroy);
    }
    return rope.get();
}

CaseFamily rope(const char *name, bool interleaved) {
    CaseFamily family = family_of(name, [interleaved](BenchmarkCase &bench_case, OperandSet &set) {
        const Heads x(bench_case, set.inputs[0]);
        Heads y(bench_case, set.outputs[0]);
        return halyard_rope_apply(bench_case.context.get(), rope_of(bench_case.id, interleaved), &x.view, nullptr,
                                  &y.view);
    });
    family.own = shapes_of_heads({{5, 198}, {3, 640}, {4, 1024}});
    return family;
}

// ---- keys and values into a cache and out of it ----

enum CacheInput { keys, values };

/** An f32 row for the keys and one for the values of each position, so that nothing but the kernels converts; and a
 *  cache of the case's type. */
void prepare_cache(BenchmarkCase &bench_case) {
    const CaseId &id = bench_case.id;
    for (std::size_t i = 0; i < id.set_count(bench_case.cold_set); i++) {
        OperandSet operands;
        for (const CacheInput input : {keys, values}) {
            operands.inputs.emplace_back(bench::Dtype::f32, id.rows, id.d);
            operands.inputs.back().fill_random(static_cast<unsigned>(input) + 1, 0.0, 1.5);
            operands.outputs.emplace_back(bench::Dtype::f32, id.rows, id.d);
        }
        halyard_kv_cache_options options{};
        options.n_layers = options.n_sequences = 1;
        options.n_kv_heads = id.d / head_dim_of(id);
        options.head_dim = head_dim_of(id);
        options.max_positions = id.rows;
        options.dtype = operations::dlpack_type(id.dtype);
        halyard_kv_cache *cache = nullptr;
        require(halyard_kv_cache_create(&options, nullptr, 0, &cache));
        operands.cache.reset(cache, halyard_kv_cache_destroy);
        bench_case.sets.push_back(std::move(operands));
    }
}

halyard_status append(BenchmarkCase &bench_case, OperandSet &set, CacheInput as_keys = keys) {
    const Heads k(bench_case, set.inputs[as_keys]), v(bench_case, set.inputs[as_keys == keys ? values : keys]);
    const halyard_status status = halyard_kv_cache_truncate(set.cache.get(), 0, 0);
    return status != HALYARD_OK
               ? status
               : halyard_kv_cache_append(bench_case.context.get(), set.cache.get(), 0, nullptr, &k.view, &v.view);
}

/** Which of the two are read. */
halyard_status read(BenchmarkCase &bench_case, OperandSet &set, std::initializer_list<CacheInput> which) {
    Heads views[] = {{bench_case, set.outputs[keys]}, {bench_case, set.outputs[values]}};
    DLTensor *outputs[] = {nullptr, nullptr};
    for (const CacheInput each : which) {
        DLTensor &view = views[each].view;
        view.ndim--;  // no axis of sequences
        view.shape++;
        view.strides++;
        outputs[each] = &view;
    }
    return halyard_kv_cache_read(bench_case.context.get(), set.cache.get(), 0, 0, 0, outputs[keys], outputs[values]);
}

template<typename Call>
CaseFamily cache_family(const char *name, const Call &call) {
    CaseFamily family = family_of(name, call);
    family.kernel.inputs = family.kernel.outputs = 2;
    family.kernel.prepare = prepare_cache;
    family.own = shapes_of_heads({{1, 256}, {37, 198}, {600, 256}});
    return family;
}

CaseFamily append_family() {
    CaseFamily family =
        cache_family("kv_append", [](BenchmarkCase &bench_case, OperandSet &set) { return append(bench_case, set); });
    family.finish = [](BenchmarkCase &bench_case) {
        require(read(bench_case, bench_case.sets[0], {keys, values}));
        require(append(bench_case, bench_case.sets[0], values));  // so that nothing passes that is not written again
    };
    return family;
}

CaseFamily read_family(const char *name, CacheInput which) {
    return cache_family(name, [which](BenchmarkCase &bench_case, OperandSet &set) {
        const bool is_empty = halyard_kv_cache_length(set.cache.get(), 0, 0) == 0;
        const halyard_status status = is_empty ? append(bench_case, set) : HALYARD_OK;
        return status != HALYARD_OK ? status : read(bench_case, set, {which});
    });
}

}  // namespace

const std::vector<std::unique_ptr<CaseFamily>> &unbenched_families() {
    static const auto all = [] {
        std::vector<std::unique_ptr<CaseFamily>> families;
        const auto add = [&](CaseFamily family) {
            families.push_back(std::make_unique<CaseFamily>(std::move(family)));
        };
        for (const char *label : {"swish", "swish_derivative", "swiglu", "swiglu.interleaved"}) {
            add(with_general_beta(label));
        }
        for (const operations::LayerActivation &activation : operations::layer_activations()) {
            add(layer_with(activation, false));
            add(layer_with(activation, true));
        }
        add(statistics("rms_norm_scale", [](auto *context, auto *x, DLTensor *scale, DLTensor *) {
            return halyard_rms_norm_scale(context, x, operations::rms_norm_eps, 0, scale);
        }));
        add(statistics("layer_norm_scale", [](auto *context, auto *x, DLTensor *scale, DLTensor *mean) {
            return halyard_layer_norm_scale(context, x, operations::layer_norm_eps, mean, scale);
        }));
        add(packing("pack_out_in", HALYARD_WEIGHT_OUT_IN, false));
        add(packing("pack_out_in_folded", HALYARD_WEIGHT_OUT_IN, true));
        add(packing("pack_in_out", HALYARD_WEIGHT_IN_OUT, false));
        add(packing("pack_in_out_folded", HALYARD_WEIGHT_IN_OUT, true));
        add(small_attention(0));
        add(small_attention(20));
        add(rope("rope", false));
        add(rope("rope_interleaved", true));
        add(append_family());
        add(read_family("kv_read_keys", keys));
        add(read_family("kv_read_values", values));
        return families;
    }();
    return all;
}

}  // namespace halyard::tune
