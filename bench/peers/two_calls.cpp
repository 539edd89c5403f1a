// The peer "two calls": add+norm as two calls of this library, the bar for the fused kernels.
#include "peers/peer.h"

namespace halyard::bench {
namespace {

class TwoCalls : public Peer {
public:
    std::string name() const override { return "two calls"; }
    std::string version() const override { return "(this library)"; }

    std::unique_ptr<PeerContender> prepare(BenchmarkCase &bench_case, std::string &reason) override {
        const std::string &operation = bench_case.id.kernel->operation;
        if (operation != "add_rms_norm" && operation != "add_layer_norm") {
            reason = "is one call";
            return nullptr;
        }
        const bool rms = operation == "add_rms_norm";
        return make_local_peer(bench_case, [&bench_case, rms](std::size_t i) {
            OperandSet &set = bench_case.sets[i];
            const halyard_context *context = bench_case.context.get();
            DLTensor *residual_out = &set.outputs[0].view, *y = &set.outputs[1].view;
            halyard_add(context, &set.inputs[0].view, &set.inputs[1].view, residual_out);
            if (rms) {
                halyard_rms_norm(context, residual_out, &bench_case.weight->view, rms_norm_eps, 0, y);
            } else {
                halyard_layer_norm(context, residual_out, &bench_case.weight->view, &bench_case.bias->view,
                                   layer_norm_eps, y);
            }
        });
    }
};

const PeerRegistration registration("two calls", [](const PeerOptions &, std::string &) -> std::unique_ptr<Peer> {
    return std::make_unique<TwoCalls>();
});

}  // namespace
}  // namespace halyard::bench
