// Rotary position embedding of the heads of one token, on processors. On GPUs rope_tokens.cpp does all tokens at once.
#include "Halide.h"

#include "rotation.h"
#include "schedules/rope.h"
#include "storage.h"

namespace halyard {
namespace {

using namespace Halide;

class Rope : public Generator<Rope> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    GeneratorParam<bool> interleaved{"interleaved", false};  // pairs of neighbours instead of halves
    schedules::RopeParams params;

    Input<Buffer<float, 1>> cosines{"cosines"}, sines{"sines"};  // of the token's position
    Input<Buffer<void, 3>> x{"x"};                               // x(pair, part, head)
    Output<Buffer<void, 3>> y{"y"};                              // may be x

    void configure() {
        x.set_type(storage().type());
        y.set_type(storage().type());
    }

    void generate() {
        const Math math(get_target());
        loaded(pair, part, head) = storage().widen(x(pair, part, head));
        const Expr x0 = loaded(pair, 0, head), x1 = loaded(pair, 1, head), c = cosines(pair), s = sines(pair);
        const Expr first = rotated_first(math, x0, x1, c, s), second = rotated_second(math, x0, x1, c, s);
        y(pair, part, head) = storage().narrow_result(strict_float(select(part == 0, first, second)));
    }

    void schedule() {
        for (auto *buffer : {&cosines, &sines}) {
            buffer->dim(0).set_min(0);
        }
        x.dim(0).set_min(0).set_stride(interleaved ? 2 : 1);
        x.dim(1).set_bounds(0, 2);
        x.dim(2).set_min(0);
        y.dim(0).set_min(0).set_stride(interleaved ? 2 : 1);
        y.dim(1).set_bounds(0, 2);
        y.dim(2).set_min(0);
        if (interleaved) {
            x.dim(1).set_stride(1);
            y.dim(1).set_stride(1);
        }
        if (using_autoscheduler()) {
            return;
        }
        schedules::rope({loaded, y, pair, part, head, y.dim(0).extent(), y.dim(2).extent()}, params, get_target());
    }

private:
    Storage storage() const { return Storage(dtype, get_target()); }

    Var pair{"pair"}, part{"part"}, head{"head"};
    Func loaded{"loaded"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Rope, rope)
