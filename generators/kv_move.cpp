// Keys and values between f32 rows and the panels of the cache (runtime/layout/kv.h):
//
//     values   to(inner, outer, panel) = from(inner, outer, panel)    a row of a panel is 16 features of a position
//     keys     to(inner, outer, panel) = from(outer, inner, panel)    a row of a panel is a feature of 16 positions
//
// each rounded to the cache's storage type, or widened from it. In bf16 a row of a panel is of two positions or features.
#include "Halide.h"

#include "panels.h"
#include "runtime/layout/matmul.h"
#include "schedules/kernel_tensors.h"
#include "schedules/kv_move.h"

namespace halyard {
namespace {

using namespace Halide;

class KvMove : public Generator<KvMove> {
public:
    KernelTensors tensors;                                 // dtype: of the panels
    GeneratorParam<bool> transposed{"transposed", false};  // keys
    GeneratorParam<bool> unpack{"unpack", false};          // from panels to rows
    schedules::KvMoveParams params;

    Input<Buffer<void, 3>> from{"from"};
    Output<Buffer<void, 3>> to{"to"};

    void configure() {
        tensors.configure(*this);
        from.set_type(unpack ? panels().type() : Float(32));
        to.set_type(unpack ? Float(32) : panels().type());
    }

    void generate() {
        // element(inner, outer, panel) in the order of `from`, the rows of panels being inner or outer.
        const auto narrowed = [&](const Expr &i, const Expr &o) { return tensors.storage().narrow(from(i, o, panel)); };
        if (unpack) {
            element(inner, outer, panel) = panels().widen(from(inner, panels().row(outer), panel), outer);
        } else if (transposed) {
            element(inner, outer, panel) = panels().hold(inner, [&](const Expr &i) { return narrowed(i, outer); });
        } else {
            element(inner, outer, panel) = panels().hold(outer, [&](const Expr &o) { return narrowed(inner, o); });
        }
        to(inner, outer, panel) = transposed ? element(outer, inner, panel) : element(inner, outer, panel);
    }

    void schedule() {
        begin_at_zero(from, to);
        if (unpack) {
            from.dim(1).set_stride(panel_width);
        } else {
            to.dim(1).set_stride(panel_width);
        }
        tensors.begin_schedule(*this);
        schedules::kv_move({element, to, inner, outer, panel, to.dim(0).extent(), to.dim(1).extent(), transposed},
                           params, get_target());
    }

private:
    Panels panels() const { return {tensors.dtype, tensors.storage()}; }

    Var inner{"inner"}, outer{"outer"}, panel{"panel"};
    Func element{"element"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::KvMove, kv_move)
