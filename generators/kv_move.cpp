// Keys and values between f32 rows and the panels of the cache (runtime/layout/kv.h):
//
//     values   to(inner, outer, panel) = from(inner, outer, panel)    a row of a panel is 16 features of a position
//     keys     to(inner, outer, panel) = from(outer, inner, panel)    a row of a panel is a feature of 16 positions
//
// each rounded to the cache's storage type, or widened from it.
#include "Halide.h"

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
        const DType panels = tensors.dtype;
        tensors.add(*this, from, unpack ? panels : DType::f32);
        tensors.add(*this, to, unpack ? DType::f32 : panels);
    }

    void generate() {
        // element(inner, outer, panel) in the order of `from`.
        const Expr stored = from(inner, outer, panel);
        const Storage storage = tensors.storage();
        element(inner, outer, panel) = unpack ? storage.widen(stored) : storage.narrow(stored);
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
    Var inner{"inner"}, outer{"outer"}, panel{"panel"};
    Func element{"element"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::KvMove, kv_move)
