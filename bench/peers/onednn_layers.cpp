// Layers for the peer "onednn": matrix products with the weights in the format that oneDNN chooses for the shape,
// reordered beforehand and on huge pages as ours are. Bias, activation, gated unit and residual are post-operations of
// the products: the gate's product activates it, up's multiplies by it.
#include <sys/mman.h>

#include <new>

#include "layer.h"
#include "peers/onednn.h"

namespace halyard::bench {
namespace {

using dnnl::algorithm;
using dnnl::memory;

dnnl::matmul::primitive_desc make_product(const dnnl::engine &engine, const memory::desc &x,
                                          const memory::desc &weights, const memory::desc &bias, const memory::desc &y,
                                          const dnnl::primitive_attr &attributes) {
    return bias.get_ndims() == 0 ? dnnl::matmul::primitive_desc(engine, x, weights, y, attributes)
                                 : dnnl::matmul::primitive_desc(engine, x, weights, bias, y, attributes);
}

std::shared_ptr<void> huge_pages(std::size_t bytes) {
    constexpr std::size_t page = std::size_t{2} << 20;
    const std::size_t length = (bytes + page - 1) / page * page;
    void *memory = std::aligned_alloc(page, length);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    madvise(memory, length, MADV_HUGEPAGE);
    return {memory, std::free};
}

/** A matrix product that becomes a step: what goes in and out, by operand set. */
struct Product {
    Layer::Part part;
    std::vector<memory> x, y;
    algorithm activation = algorithm::undef;
    algorithm binary = algorithm::undef;  // with `other`, last
    std::vector<memory> other;
};

class LayerSteps {
public:
    LayerSteps(const dnnl::engine &on, BenchmarkCase &owner)
        : engine(on), bench_case(owner), form(*owner.id.kernel->layer) {}

    std::vector<DnnlStep> make(std::string &reason) {
        std::vector<memory> x = each([&](OperandSet &set) { return dnnl_memory(engine, set.inputs[0]); });
        const std::vector<memory> y = each([&](OperandSet &set) { return dnnl_memory(engine, set.outputs[0]); });
        const std::vector<memory> residual =
            form.has_residual
                ? each([&](OperandSet &set) { return dnnl_memory(engine, set.inputs[form.is_ffn ? 0 : 1]); })
                : std::vector<memory>();
        if (form.norm != HALYARD_NORM_NONE) {
            const std::vector<memory> normalized = between(bench_case.id.d);
            steps = norm_step(engine, bench_case, form.norm == HALYARD_NORM_RMS, x, normalized, reason);
            if (steps.empty()) {
                return {};
            }
            x = normalized;
        }
        const std::vector<memory> hidden = form.is_ffn ? between(bench_case.id.d_out) : y;
        const algorithm activation = form.activation == HALYARD_SILU        ? algorithm::eltwise_swish
                                     : form.activation == HALYARD_GELU_TANH ? algorithm::eltwise_gelu_tanh
                                                                            : algorithm::undef;
        if (form.gated) {
            const std::vector<memory> gate = between(bench_case.id.d_out);
            append({Layer::first, x, gate, activation, algorithm::undef, {}});
            append({Layer::up, x, hidden, algorithm::undef, algorithm::binary_mul, gate});
        } else {
            const bool adds = form.has_residual && !form.is_ffn;
            append({Layer::first, x, hidden, activation, adds ? algorithm::binary_add : algorithm::undef, residual});
        }
        if (form.is_ffn) {
            append({Layer::down, hidden, y, algorithm::undef,
                    form.has_residual ? algorithm::binary_add : algorithm::undef, residual});
        }
        return std::move(steps);
    }

private:
    template<typename MemoryOf>
    std::vector<memory> each(const MemoryOf &memory_of) {
        std::vector<memory> memories;
        for (OperandSet &set : bench_case.sets) {
            memories.push_back(memory_of(set));
        }
        return memories;
    }

    /** One tensor for all operand sets, as a caller has it for what lies between two products. */
    std::vector<memory> between(std::int64_t width) const {
        const memory tensor({{bench_case.id.rows, width}, dnnl_type(bench_case.id.dtype), memory::format_tag::ab},
                            engine);
        return std::vector<memory>(bench_case.sets.size(), tensor);
    }

    void append(const Product &product) {
        const PeriodicMatrix &matrix = bench_case.layer->matrix(product.part);
        const std::int64_t in = matrix.in(), out = matrix.out();
        const memory::data_type type = dnnl_type(bench_case.id.dtype);
        const Matrix *bias = bench_case.layer->bias(product.part);
        const memory::desc any({in, out}, type, memory::format_tag::any);
        const memory::desc bias_desc =
            bias != nullptr ? memory::desc({1, out}, type, memory::format_tag::ab) : memory::desc();
        dnnl::post_ops operations;
        if (product.activation != algorithm::undef) {
            operations.append_eltwise(product.activation, 1.0f, 0.0f);
        }
        if (product.binary != algorithm::undef) {
            operations.append_binary(product.binary, product.y[0].get_desc());
        }
        dnnl::primitive_attr attributes;
        attributes.set_post_ops(operations);
        const auto description =
            make_product(engine, product.x[0].get_desc(), any, bias_desc, product.y[0].get_desc(), attributes);

        DnnlStep step{dnnl::primitive(description.get()), description.impl_info_str(), {}, {}};
        const Matrix source = bench_case.layer->source(product.part);
        memory plain({{in, out}, type, memory::format_tag::ba}, engine, source.data());
        for (std::size_t i = 0; i < bench_case.sets.size(); i++) {
            step.owned.push_back(huge_pages(description.weights_desc().get_size()));
            memory weights(description.weights_desc(), engine, step.owned.back().get());
            dnnl::stream stream(engine);
            dnnl::reorder(plain, weights).execute(stream, plain, weights);
            stream.wait();
            DnnlArguments arguments{
                {DNNL_ARG_SRC, product.x[i]}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, product.y[i]}};
            if (bias != nullptr) {
                arguments.emplace(DNNL_ARG_BIAS, memory(bias_desc, engine, bias->data()));
            }
            if (product.binary != algorithm::undef) {
                const int place = product.activation != algorithm::undef ? 1 : 0;
                arguments.emplace(DNNL_ARG_ATTR_MULTIPLE_POST_OP(place) | DNNL_ARG_SRC_1, product.other[i]);
            }
            step.arguments.push_back(arguments);
        }
        steps.push_back(std::move(step));
    }

    const dnnl::engine &engine;
    BenchmarkCase &bench_case;
    const LayerForm form;
    std::vector<DnnlStep> steps;
};

}  // namespace

std::vector<DnnlStep> layer_steps(const dnnl::engine &engine, BenchmarkCase &bench_case, std::string &reason) {
    return LayerSteps(engine, bench_case).make(reason);
}

}  // namespace halyard::bench
