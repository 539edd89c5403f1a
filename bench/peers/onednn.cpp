// The peer "onednn": oneDNN's primitives, made once for the shape and executed on the same tensors.
//
// Gated units are an eltwise primitive with a binary multiplication as post-op, which is how oneDNN fuses them, or two
// primitives where it has only reference code for that; add+norm is two primitives. Works with every version 3; RMSNorm
// came in one of them.
#include "peers/onednn.h"

#include <omp.h>

#include <algorithm>
#include <map>

#include "peers/peer.h"

namespace halyard::bench {
namespace {

using dnnl::algorithm;
using dnnl::memory;

using Step = DnnlStep;

/** Code that oneDNN has for completeness, hundreds of times slower than what anyone would use. "simple:any" is its
 *  catch-all for reorders, which are casts here. */
bool is_reference(const std::string &implementation) {
    return implementation.rfind("ref", 0) == 0 || implementation == "simple:any";
}

struct Activation {
    algorithm kind;
    float alpha;
};

/** By the name of our function; the gated units by that of the unit. */
const std::map<std::string, Activation> &activations() {
    static const std::map<std::string, Activation> table = {
        {"relu", {algorithm::eltwise_relu, 0}},
        {"gelu", {algorithm::eltwise_gelu_erf, 0}},
        {"gelu_tanh", {algorithm::eltwise_gelu_tanh, 0}},
        {"gelu_sigmoid", {algorithm::eltwise_swish, 1.702f}},
        {"silu", {algorithm::eltwise_swish, 1}},
        {"swish", {algorithm::eltwise_swish, beta}},
        {"sigmoid", {algorithm::eltwise_logistic, 0}},
        {"tanh", {algorithm::eltwise_tanh, 0}},
        {"exp", {algorithm::eltwise_exp, 0}},
        {"glu", {algorithm::eltwise_logistic, 0}},
        {"reglu", {algorithm::eltwise_relu, 0}},
        {"geglu", {algorithm::eltwise_gelu_erf, 0}},
        {"geglu_tanh", {algorithm::eltwise_gelu_tanh, 0}},
        {"swiglu", {algorithm::eltwise_swish, beta}},
    };
    return table;
}

dnnl::eltwise_forward::primitive_desc make_eltwise(const dnnl::engine &engine, const memory::desc &shape,
                                                   Activation activation, const dnnl::primitive_attr &attributes) {
    return {engine,    dnnl::prop_kind::forward_inference, activation.kind, shape, shape, activation.alpha, 0.0f,
            attributes};
}
dnnl::binary::primitive_desc make_binary(const dnnl::engine &engine, const memory::desc &shape, algorithm kind) {
    return {engine, kind, shape, shape, shape};
}
dnnl::softmax_forward::primitive_desc make_softmax(const dnnl::engine &engine, const memory::desc &shape) {
    return {engine, dnnl::prop_kind::forward_inference, algorithm::softmax_accurate, shape, shape, 1};
}
dnnl::layer_normalization_forward::primitive_desc make_norm(const dnnl::engine &engine, const memory::desc &shape,
                                                            float eps, dnnl::normalization_flags flags) {
    return {engine, dnnl::prop_kind::forward_inference, shape, shape, eps, flags};
}

class OneDnn : public Peer {
public:
    std::string name() const override { return "onednn"; }
    std::string version() const override {
        const dnnl_version_t *v = dnnl_version();
        std::string text = std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
        const std::string hash = v->hash != nullptr ? v->hash : "";
        return hash.empty() || hash == "N/A" ? text : text + " (" + hash.substr(0, 10) + ")";
    }

    PeerAbout about() const override {
#ifdef HALYARD_BENCH_ONEDNN_RMS_NORM
        const std::string without;
#else
        const std::string without = "; this version has no RMSNorm";
#endif
        return {"oneDNN", "primitives made for the shape beforehand, weights in the format it chooses, on OpenMP",
                "no packed units, no attention, no blocks" + without, "C"};
    }

    std::unique_ptr<PeerContender> prepare(BenchmarkCase &bench_case, std::string &reason) override {
        omp_set_num_threads(
            bench_case.id.threads);  // of this thread's parallel regions, fixed when a primitive is made
        std::vector<Step> steps;
        try {
            steps = make_steps(bench_case, reason);
        } catch (const dnnl::error &error) {
            reason = error.status == dnnl_unimplemented ? "has none for this type on this processor"
                                                        : std::string("refuses: ") + error.what();
            return nullptr;
        }
        if (steps.empty()) {
            return nullptr;
        }
        std::string implementations;
        for (const Step &step : steps) {
            if (is_reference(step.implementation)) {
                reason = "has only reference code for it on this processor";
                return nullptr;
            }
            implementations += (implementations.empty() ? "" : " + ") + step.implementation;
        }
        const int threads = bench_case.id.threads;
        auto peer = make_local_peer(bench_case, [this, threads, steps = std::move(steps)](std::size_t set) {
            omp_set_num_threads(threads);
            for (const Step &step : steps) {
                step.primitive.execute(stream, step.arguments[set]);
            }
        });
        peer->note = "runs " + implementations;
        return peer;
    }

private:
    /** The primitives for the work; none, with a reason, if there are none. */
    std::vector<Step> make_steps(BenchmarkCase &bench_case, std::string &reason) {
        const Kernel &kernel = *bench_case.id.kernel;
        if (kernel.layer) {
            return layer_steps(engine, bench_case, reason);
        }
        const memory::desc shape({bench_case.id.rows, bench_case.id.d}, dnnl_type(bench_case.id.dtype),
                                 memory::format_tag::ab);
        const auto on = [&](const Matrix &matrix) { return dnnl_memory(engine, matrix); };
        const auto bind = [&](const auto &description, const auto &arguments) {
            Step step{dnnl::primitive(description.get()), description.impl_info_str(), {}, {}};
            for (OperandSet &set : bench_case.sets) {
                step.arguments.push_back(arguments(set));
            }
            return step;
        };
        using Arguments = DnnlArguments;

        const auto activation = activations().find(kernel.operation);
        if (activation != activations().end()) {
            const bool gated = kernel.inputs == 2;
            dnnl::primitive_attr attributes;
            if (gated) {
                dnnl::post_ops multiply;
                multiply.append_binary(algorithm::binary_mul, shape);
                attributes.set_post_ops(multiply);
            }
            auto eltwise = make_eltwise(engine, shape, activation->second, attributes);
            const bool fused = gated && !is_reference(eltwise.impl_info_str());
            if (gated && !fused) {
                eltwise = make_eltwise(engine, shape, activation->second, {});
            }
            std::vector<Step> steps{bind(eltwise, [&](OperandSet &set) {
                Arguments arguments{{DNNL_ARG_SRC, on(set.inputs[0])}, {DNNL_ARG_DST, on(set.outputs[0])}};
                if (fused) {
                    arguments.emplace(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, on(set.inputs[1]));
                }
                return arguments;
            })};
            if (gated && !fused) {
                steps.push_back(bind(make_binary(engine, shape, algorithm::binary_mul), [&](OperandSet &set) {
                    return Arguments{{DNNL_ARG_SRC_0, on(set.outputs[0])},
                                     {DNNL_ARG_SRC_1, on(set.inputs[1])},
                                     {DNNL_ARG_DST, on(set.outputs[0])}};
                }));
            }
            return steps;
        }
        if (kernel.operation == "add" || kernel.operation == "bilinear") {
            const algorithm kind = kernel.operation == "add" ? algorithm::binary_add : algorithm::binary_mul;
            return {bind(make_binary(engine, shape, kind), [&](OperandSet &set) { return binary_arguments(set, on); })};
        }
        if (kernel.operation == "softmax") {
            return {bind(make_softmax(engine, shape), [&](OperandSet &set) {
                return Arguments{{DNNL_ARG_SRC, on(set.inputs[0])}, {DNNL_ARG_DST, on(set.outputs[0])}};
            })};
        }
        if (kernel.operation == "cast") {
            const dnnl::reorder::primitive_desc reorder(on(bench_case.sets[0].inputs[0]),
                                                        on(bench_case.sets[0].outputs[0]));
            return {bind(reorder, [&](OperandSet &set) {
                return Arguments{{DNNL_ARG_FROM, on(set.inputs[0])}, {DNNL_ARG_TO, on(set.outputs[0])}};
            })};
        }
        const bool fused_add = kernel.operation == "add_rms_norm" || kernel.operation == "add_layer_norm";
        const bool rms = kernel.operation == "add_rms_norm" || kernel.operation == "rms_norm";
        if (!fused_add && !rms && kernel.operation != "layer_norm") {
            reason = "has no such operation";
            return {};
        }
        return norm_steps(bench_case, rms, fused_add, shape, on, bind, reason);
    }

    template<typename On>
    static std::unordered_map<int, memory> binary_arguments(OperandSet &set, const On &on) {
        return {{DNNL_ARG_SRC_0, on(set.inputs[0])},
                {DNNL_ARG_SRC_1, on(set.inputs[1])},
                {DNNL_ARG_DST, on(set.outputs[0])}};
    }

    template<typename On, typename Bind>
    std::vector<Step> norm_steps(BenchmarkCase &bench_case, bool rms, bool fused_add, const memory::desc &shape,
                                 const On &on, const Bind &bind, std::string &reason) {
        std::vector<memory> x, y;
        for (OperandSet &set : bench_case.sets) {
            x.push_back(fused_add ? on(set.outputs[0]) : on(set.inputs[0]));
            y.push_back(fused_add ? on(set.outputs[1]) : on(set.outputs[0]));
        }
        std::vector<Step> steps = norm_step(engine, bench_case, rms, x, y, reason);
        if (fused_add && !steps.empty()) {
            steps.insert(steps.begin(), bind(make_binary(engine, shape, algorithm::binary_add),
                                             [&](OperandSet &set) { return binary_arguments(set, on); }));
        }
        return steps;
    }

    dnnl::engine engine{dnnl::engine::kind::cpu, 0};
    dnnl::stream stream{engine};
};

const PeerRegistration registration(
    "onednn",
    []([[maybe_unused]] const PeerOptions &options, std::string &) -> std::unique_ptr<Peer> {
#if defined(__x86_64__)
        if (options.caps_isa()) {
            dnnl::set_max_cpu_isa(options.isa == HALYARD_ISA_AVX2 ? dnnl::cpu_isa::avx2 : dnnl::cpu_isa::sse41);
        }
#endif
        return std::make_unique<OneDnn>();
    },
    Runs::isolated);

}  // namespace

memory::data_type dnnl_type(Dtype dtype) {
    return dtype == Dtype::f32   ? memory::data_type::f32
           : dtype == Dtype::f16 ? memory::data_type::f16
                                 : memory::data_type::bf16;
}

memory dnnl_memory(const dnnl::engine &engine, const Matrix &matrix) {
    return memory({{matrix.rows(), matrix.width()}, dnnl_type(matrix.dtype()), memory::format_tag::ab}, engine,
                  matrix.data());
}

std::vector<Step> norm_step(const dnnl::engine &engine, const BenchmarkCase &bench_case, bool rms,
                            const std::vector<memory> &x, const std::vector<memory> &y,
                            [[maybe_unused]] std::string &reason) {
    auto flags = dnnl::normalization_flags::none;
    if (rms) {
#ifdef HALYARD_BENCH_ONEDNN_RMS_NORM
        flags |= dnnl::normalization_flags::rms_norm;
#else
        reason = "has no RMSNorm in this version";
        return {};
#endif
    }
    // All versions take the parameters in f32, whatever the type of the tensors.
    const auto in_f32 = [&](const Matrix &values) {
        memory copy({{bench_case.id.d}, memory::data_type::f32, memory::format_tag::a}, engine);
        const operations::Row row = values.row(0);
        std::copy(row.begin(), row.end(), static_cast<float *>(copy.get_data_handle()));
        return copy;
    };
    DnnlArguments parameters;
    if (bench_case.weight) {
        flags |= dnnl::normalization_flags::use_scale;
        parameters.emplace(DNNL_ARG_SCALE, in_f32(*bench_case.weight));
    }
    if (bench_case.bias) {
        flags |= dnnl::normalization_flags::use_shift;
        parameters.emplace(DNNL_ARG_SHIFT, in_f32(*bench_case.bias));
    }
    const float eps = rms ? rms_norm_eps : layer_norm_eps;
    const auto description = make_norm(engine, x[0].get_desc(), eps, flags);
    Step step{dnnl::primitive(description.get()), description.impl_info_str(), {}, {}};
    for (std::size_t i = 0; i < x.size(); i++) {
        DnnlArguments arguments = parameters;
        arguments.emplace(DNNL_ARG_SRC, x[i]);
        arguments.emplace(DNNL_ARG_DST, y[i]);
        step.arguments.push_back(std::move(arguments));
    }
    return {std::move(step)};
}

}  // namespace halyard::bench
