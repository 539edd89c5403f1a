// The soft cap of attention scores: y = cap tanh(scale s / cap). y may be s.
#include "Halide.h"

#include "math.h"
#include "schedules/attention.h"
#include "schedules/kernel_tensors.h"

namespace halyard {
namespace {

using namespace Halide;

class AttentionSoftcap : public Generator<AttentionSoftcap> {
public:
    KernelTensors tensors;
    schedules::AttentionParams params;

    Input<Buffer<float, 2>> s{"s"};
    Input<float> scale{"scale"};
    Input<float> cap{"cap"};
    Output<Buffer<float, 2>> y{"y"};

    void configure() { tensors.configure(*this); }

    void generate() {
        const Math math = Math::of_strict(get_target());
        y(position, row) = strict_float(math.tanh(strict_float(strict_float(s(position, row) * scale) / cap)) * cap);
    }

    void schedule() {
        tensors.begin_schedule(*this);
        schedules::attention_rows(y, position, params, get_target());
    }

private:
    Var position{"position"}, row{"row"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::AttentionSoftcap, attention_softcap)
