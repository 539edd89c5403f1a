// Rotary position embedding of the heads of one token, on processors. On GPUs rope_tokens.cpp does all tokens at once.
#include "Halide.h"

#include "rotation.h"
#include "schedules/kernel_tensors.h"
#include "schedules/rope.h"

namespace halyard {
namespace {

using namespace Halide;

class Rope : public Generator<Rope> {
public:
    KernelTensors tensors;
    GeneratorParam<bool> interleaved{"interleaved", false};  // pairs of neighbours instead of halves
    schedules::RopeParams params;

    Input<Buffer<float, 1>> cosines{"cosines"}, sines{"sines"};  // of the token's position
    Input<Buffer<void, 3>> x{"x"};                               // x(pair, part, head)
    Output<Buffer<void, 3>> y{"y"};                              // may be x

    void configure() { tensors.configure(*this, x, y); }

    void generate() {
        const Fma fused(get_target());
        loaded(pair, part, head) = tensors.storage().widen(x(pair, part, head));
        const Expr x0 = loaded(pair, 0, head), x1 = loaded(pair, 1, head), c = cosines(pair), s = sines(pair);
        const Expr first = rotated_first(fused, x0, x1, c, s), second = rotated_second(fused, x0, x1, c, s);
        y(pair, part, head) = tensors.storage().narrow_result(select(part == 0, first, second));
    }

    void schedule() {
        begin_at_zero(cosines, sines, x, y);
        for (OutputImageParam buffer : {OutputImageParam(x), OutputImageParam(y)}) {
            buffer.dim(0).set_stride(interleaved ? 2 : 1);
            buffer.dim(1).set_extent(2);
            if (interleaved) {
                buffer.dim(1).set_stride(1);
            }
        }
        tensors.begin_schedule(*this);
        schedules::rope({loaded, y, pair, part, head, y.dim(0).extent(), y.dim(2).extent()}, params, get_target());
    }

private:
    Var pair{"pair"}, part{"part"}, head{"head"};
    Func loaded{"loaded"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Rope, rope)
