// The peer "separate calls": a layer with every step as a call of this library, on matrices packed one by one: the bar
// for the fused forms. Norm, gate, up, gated unit or activation, down, residual; of a block its kernels
// (separate_block.h).
#include <stdexcept>

#include "layer.h"
#include "peers/separate_block.h"

namespace halyard::bench {
namespace {

void require(halyard_status status) {
    if (status != HALYARD_OK) {
        throw std::runtime_error(halyard_last_error());
    }
}

/** The steps of one layer, with the tensors between them. */
class Steps {
public:
    explicit Steps(BenchmarkCase &owner)
        : bench_case(owner), form(*owner.id.kernel->layer),
          normalized(matrix(form.norm != HALYARD_NORM_NONE, owner.id.d)), hidden(matrix(form.is_ffn, owner.id.d_out)),
          up(matrix(form.gated, owner.id.d_out)) {
        if (form.gated || form.deferred_norm) {
            pack_each();
        }
    }

    void operator()(std::size_t index) {
        OperandSet &set = bench_case.sets[index];
        const halyard_context *context = bench_case.context.get();
        const DLTensor *x = &set.inputs[0].view;
        DLTensor *y = &set.outputs[0].view, *product = form.is_ffn ? &hidden->view : y;
        if (form.norm != HALYARD_NORM_NONE) {
            const DLTensor *weight = &bench_case.weight->view;
            require(form.norm == HALYARD_NORM_RMS
                        ? halyard_rms_norm(context, x, weight, rms_norm_eps, 0, &normalized->view)
                        : halyard_layer_norm(context, x, weight, &bench_case.bias->view, layer_norm_eps,
                                             &normalized->view));
            x = &normalized->view;
        }
        const auto &first = packed.empty() ? set.weights[0] : packed[index].first;
        require(linear(x, first.get(), bench_case.layer->bias(Layer::first), product));
        if (form.gated) {
            require(linear(x, packed[index].up.get(), nullptr, &up->view));
            require(gate(product));
        } else if (form.activation != HALYARD_IDENTITY) {
            require(halyard_gelu_tanh(context, product, product));
        }
        if (form.is_ffn) {
            require(linear(product, set.weights[1].get(), bench_case.layer->bias(Layer::down), y));
        }
        if (form.has_residual) {
            require(halyard_add(context, y, &set.inputs[form.is_ffn ? 0 : 1].view, y));
        }
    }

private:
    using Weights = std::shared_ptr<const halyard_weights>;
    struct Packed {
        Weights first, up;
    };

    std::unique_ptr<Matrix> matrix(bool wanted, std::int64_t width) const {
        return wanted ? std::make_unique<Matrix>(bench_case.id.dtype, bench_case.id.rows, width) : nullptr;
    }
    void pack_each() {
        packed.resize(bench_case.sets.size());
        const Matrix first = bench_case.layer->source(Layer::first);
        for (Packed &each : packed) {
            each.first = pack_weights(bench_case, first);
        }
        if (form.gated) {
            const Matrix second = bench_case.layer->source(Layer::up);
            for (Packed &each : packed) {
                each.up = pack_weights(bench_case, second);
            }
        }
    }
    halyard_status linear(const DLTensor *x, const halyard_weights *weights, const Matrix *bias, DLTensor *y) const {
        halyard_linear_options options{};
        options.bias = bias != nullptr ? &bias->view : nullptr;
        return halyard_linear(bench_case.context.get(), x, weights, &options, y);
    }
    halyard_status gate(DLTensor *product) const {
        const halyard_context *context = bench_case.context.get();
        return form.activation == HALYARD_SILU ? halyard_swiglu(context, product, &up->view, beta, product)
                                               : halyard_geglu_tanh(context, product, &up->view, product);
    }

    BenchmarkCase &bench_case;
    const LayerForm form;
    std::unique_ptr<Matrix> normalized, hidden, up;
    std::vector<Packed> packed;  // by operand set; empty if the work's own matrices serve
};

class SeparateCalls : public Peer {
public:
    std::string name() const override { return "separate calls"; }
    std::string version() const override { return "(this library)"; }

    std::unique_ptr<PeerContender> prepare(BenchmarkCase &bench_case, std::string &reason) override {
        if (bench_case.block) {
            return make_separate_block(bench_case);
        }
        const auto &form = bench_case.id.kernel->layer;
        if (!form || (!form->is_ffn && !form->gated && form->activation == HALYARD_IDENTITY && !form->has_residual)) {
            reason = "is one call";
            return nullptr;
        }
        const auto steps = std::make_shared<Steps>(bench_case);
        return make_local_peer(bench_case, [steps](std::size_t set) { (*steps)(set); });
    }
};

const PeerRegistration registration("separate calls", [](const PeerOptions &, std::string &) -> std::unique_ptr<Peer> {
    return std::make_unique<SeparateCalls>();
});

}  // namespace
}  // namespace halyard::bench
