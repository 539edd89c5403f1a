// See case_families.h.
#include "case_families.h"

#include <map>
#include <tuple>

#include "bench/cases/attention.h"

namespace halyard::tune {
namespace {

using bench::BenchmarkCase;
using bench::CaseId;
using bench::Dtype;
using bench::HeadsView;
using bench::Kernel;
using bench::Matrix;
using bench::OperandSet;
using bench::require;

/** A call that is no row of the suite; `make` gives the tensors of one. */
template<typename Make, typename Call>
Kernel kernel_of(const char *name, const Make &make, const Call &call) {
    Kernel kernel;
    kernel.name = kernel.operation = name;
    kernel.prepare = [make](BenchmarkCase &bench_case) {
        for (std::size_t i = 0; i < bench_case.id.set_count(bench_case.cold_set); i++) {
            bench_case.sets.push_back(make(bench_case));
        }
    };
    kernel.call = call;
    return kernel;
}

OperandSet with_inputs(const CaseId &id, Dtype type, unsigned count) {
    OperandSet set;
    for (unsigned i = 0; i < count; i++) {
        set.inputs.emplace_back(type, id.rows, id.d);
        set.inputs.back().fill_random(i + 1, 0.0, 1.5);
    }
    return set;
}

Kernel epilogue(const operations::LayerActivation &activation, bool gated) {
    bench::LayerForm form;
    form.gated = gated;
    form.activation = activation.value;
    form.beta = 1.25f;  // that has no kernels of its own
    return bench::layer_kernel(std::string("linear_") + activation.name + (gated ? "_gated" : "") + ".epilogue", form);
}

/** Rows in 8 bits whose units have 16 inputs, as groups of the weights have. */
Kernel int8_products_of_groups_of_16() {
    bench::LayerForm form;
    form.quantization = {8, 16, 0, {}};
    form.int8_products = true;
    return bench::layer_kernel("linear.int8_16.int8", form);
}

template<typename Call>
Kernel statistics(const char *name, const Call &call) {
    const auto make = [](BenchmarkCase &bench_case) {
        OperandSet set = with_inputs(bench_case.id, bench_case.id.dtype, 1);
        set.outputs.emplace_back(Dtype::f32, 1, bench_case.id.rows);
        set.outputs.emplace_back(Dtype::f32, 1, bench_case.id.rows);
        return set;
    };
    return kernel_of(name, make, [call](BenchmarkCase &bench_case, OperandSet &set) {
        DLTensor scale = vector_view(set.outputs[0]), mean = vector_view(set.outputs[1]);
        return call(bench_case.context.get(), &set.inputs[0].view, &scale, &mean);
    });
}

/** Packing of a matrix [rows, d] or, [in, out], its transpose; folded with a norm's weight. */
Kernel packing(const char *name, halyard_weight_layout layout, bool folded) {
    halyard_pack_options options{};
    options.layout = layout;
    const auto make = [=](BenchmarkCase &bench_case) {
        const CaseId &id = bench_case.id;
        OperandSet set = with_inputs(id, id.dtype, 1);
        set.inputs.emplace_back(id.dtype, 1, layout == HALYARD_WEIGHT_OUT_IN ? id.d : id.rows);
        set.inputs[1].fill_random(100, 1.0, 0.1);
        std::int64_t bytes = 0;
        require(halyard_weights_size(&set.inputs[0].view, &options, &bytes));
        set.outputs.emplace_back(Dtype::f32, 1, bytes / 4);
        return set;
    };
    return kernel_of(name, make, [=](BenchmarkCase &bench_case, OperandSet &set) {
        const DLTensor norm_weight = vector_view(set.inputs[1]);
        halyard_pack_options asked = options;
        asked.norm_weight = folded ? &norm_weight : nullptr;
        const Matrix &packed = set.outputs[0];
        halyard_weights *weights = nullptr;
        const halyard_status status =
            halyard_weights_pack(bench_case.context.get(), &set.inputs[0].view, &asked, packed.data(),
                                 static_cast<std::int64_t>(packed.bytes()), &weights);
        halyard_weights_destroy(weights);
        return status;
    });
}

// ---- heads ----

std::int64_t head_dim_of(const CaseId &id) {
    return id.d % usual_head_dim == 0 ? usual_head_dim : id.d / 3;
}

/** Rows of a matrix as heads. */
struct Heads : HeadsView {
    Heads(const CaseId &id, const Matrix &matrix) : HeadsView(matrix, 1, id.d / head_dim_of(id), head_dim_of(id)) {}
};

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
    const auto make = [](BenchmarkCase &bench_case) {
        const CaseId &id = bench_case.id;
        OperandSet set = with_inputs(id, id.dtype, 1);
        set.outputs.emplace_back(id.dtype, id.rows, id.d);
        return set;
    };
    const auto call = [interleaved](BenchmarkCase &bench_case, OperandSet &set) {
        const Heads x(bench_case.id, set.inputs[0]);
        Heads y(bench_case.id, set.outputs[0]);
        return halyard_rope_apply(bench_case.context.get(), rope_of(bench_case.id, interleaved), &x.view, nullptr,
                                  &y.view);
    };
    return {kernel_of(name, make, call), {{5, 198}, {3, 640}, {4, 1024}}};
}

const std::vector<Shape> cache_checks = {{1, 256}, {37, 198}, {600, 256}};

/** An f32 row for the keys and one for the values of each position, so that nothing but the kernels converts; the output is the
 *  memory of a cache of the case's type. */
OperandSet with_cache(BenchmarkCase &bench_case) {
    const CaseId &id = bench_case.id;
    OperandSet set = with_inputs(id, Dtype::f32, 2);
    const std::int64_t head_dim = head_dim_of(id);
    const halyard_kv_cache_options options = {1,        1,       id.d / head_dim,
                                              head_dim, id.rows, operations::dlpack_type(id.dtype)};
    std::int64_t bytes = 0;
    require(halyard_kv_cache_size(&options, &bytes));
    set.outputs.emplace_back(Dtype::f32, 1, bytes / 4);
    halyard_kv_cache *cache = nullptr;
    require(halyard_kv_cache_create(&options, set.outputs[0].data(), bytes, &cache));
    set.cache.reset(cache, halyard_kv_cache_destroy);
    return set;
}

halyard_status append(BenchmarkCase &bench_case, OperandSet &set) {
    const Heads k(bench_case.id, set.inputs[0]), v(bench_case.id, set.inputs[1]);
    const halyard_status status = halyard_kv_cache_truncate(set.cache.get(), 0, 0);
    return status != HALYARD_OK
               ? status
               : halyard_kv_cache_append(bench_case.context.get(), set.cache.get(), 0, nullptr, &k.view, &v.view);
}

CaseFamily cache_read(const char *name, bool keys) {
    const auto make = [](BenchmarkCase &bench_case) {
        OperandSet set = with_cache(bench_case);
        require(append(bench_case, set));
        set.inputs.push_back(std::move(set.outputs[0]));
        set.outputs.clear();
        set.outputs.emplace_back(Dtype::f32, bench_case.id.rows, bench_case.id.d);
        return set;
    };
    const auto call = [keys](BenchmarkCase &bench_case, OperandSet &set) {
        Heads y(bench_case.id, set.outputs[0]);
        y.view.ndim--;  // no axis of sequences
        y.view.shape++;
        y.view.strides++;
        return halyard_kv_cache_read(bench_case.context.get(), set.cache.get(), 0, 0, 0, keys ? &y.view : nullptr,
                                     keys ? nullptr : &y.view);
    };
    return {kernel_of(name, make, call), cache_checks};
}

/** Two blocks of keys in part, so that some are merged, and softmax with a mask and without. */
CaseFamily small_attention(double softcap) {
    constexpr bench::HeadShape heads{2, 2, 16};
    const std::int64_t d = heads.query_width();
    return {bench::make_attention(heads, softcap), {{1, d}, {67, d}, {600, d}}, Shape{1024, d}};
}

std::deque<CaseFamily> make_families() {
    std::deque<CaseFamily> all;
    // These take a beta that has no kernels of its own.
    for (const char *label :
         {"swish.beta_0.25", "swish_derivative.beta_0.25", "swiglu.beta_-0.75", "swiglu.beta_-0.75.interleaved"}) {
        all.push_back({bench::tensor_kernel(operations::operation(label))});
    }
    for (const operations::LayerActivation &activation : operations::layer_activations()) {
        all.push_back({epilogue(activation, false)});
        all.push_back({epilogue(activation, true)});
    }
    all.push_back({int8_products_of_groups_of_16()});
    all.push_back({statistics("rms_norm_scale", [](auto *context, auto *x, DLTensor *scale, DLTensor *) {
        return halyard_rms_norm_scale(context, x, operations::rms_norm_eps, 0, scale);
    })});
    all.push_back({statistics("layer_norm_scale", [](auto *context, auto *x, DLTensor *scale, DLTensor *mean) {
        return halyard_layer_norm_scale(context, x, operations::layer_norm_eps, mean, scale);
    })});
    all.push_back({packing("pack_out_in", HALYARD_WEIGHT_OUT_IN, false)});
    all.push_back({packing("pack_out_in_folded", HALYARD_WEIGHT_OUT_IN, true)});
    all.push_back({packing("pack_in_out", HALYARD_WEIGHT_IN_OUT, false)});
    all.push_back({packing("pack_in_out_folded", HALYARD_WEIGHT_IN_OUT, true)});
    all.push_back(small_attention(0));
    all.push_back(small_attention(20));
    all.push_back(rope("rope", false));
    all.push_back(rope("rope_interleaved", true));
    all.push_back({kernel_of("kv_append", with_cache, append), cache_checks});
    all.push_back(cache_read("kv_read_keys", true));
    all.push_back(cache_read("kv_read_values", false));
    return all;
}

}  // namespace

const std::deque<CaseFamily> &unbenched_families() {
    static const std::deque<CaseFamily> all = make_families();
    return all;
}

}  // namespace halyard::tune
