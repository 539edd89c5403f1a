// The way of a gradient back through the soft cap of attention scores, from s, scores that are capped, and dp, the products of
// values with dy: y = scale (dp - dot) (1 - (s / cap)²), of which weights alone are missing. y may be dp.
#include "Halide.h"

#include "schedules/attention.h"
#include "schedules/kernel_tensors.h"

namespace halyard {
namespace {

using namespace Halide;

class AttentionSoftcapGradient : public Generator<AttentionSoftcapGradient> {
public:
    KernelTensors tensors;
    schedules::AttentionParams params;

    Input<Buffer<float, 2>> s{"s"}, dp{"dp"};  // (query, key)
    Input<Buffer<float, 1>> dot{"dot"};        // (query), of the result and its gradient
    Input<float> scale{"scale"};
    Input<float> cap{"cap"};
    Output<Buffer<float, 2>> y{"y"};

    void configure() { tensors.configure(*this); }

    void generate() {
        const Expr tanh = strict_float(s(query, key) / cap);
        const Expr slope = strict_float(strict_float(1.0f - tanh) * strict_float(1.0f + tanh));
        const Expr centred = strict_float(dp(query, key) - dot(query));
        y(query, key) = strict_float(strict_float(centred * slope) * scale);
    }

    void schedule() {
        begin_at_zero(s, dp, y);
        tensors.begin_schedule(*this);
        schedules::attention_rows(y, query, params, get_target());
    }

private:
    Var query{"query"}, key{"key"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::AttentionSoftcapGradient, attention_softcap_gradient)
