// Packing of weights: a matrix as it comes into panels of 16 columns, row by row (runtime/core/handles/weights.h):
// panels(column, row, panel) = w of the row's inputs, moved as bits; or, folded, times norm_weight + offset of the input.
#include "Halide.h"

#include "folding.h"
#include "panels.h"
#include "runtime/layout/matmul.h"
#include "schedules/kernel_tensors.h"
#include "schedules/pack.h"

namespace halyard {
namespace {

using namespace Halide;

class Pack : public Generator<Pack> {
public:
    KernelTensors tensors;
    GeneratorParam<bool> transposed{"transposed", false};  // w(input, column) instead of w(column, input)
    GeneratorParam<bool> fold{"folded", false};
    schedules::PackParams params;

    Input<Buffer<void, 2>> w{"w"};
    Input<Buffer<void, 1>> norm_weight{"norm_weight"};
    Input<float> offset{"offset"};
    Output<Buffer<void, 3>> panels{"panels"};

    void configure() {
        tensors.configure(*this);
        const Type type = fold ? tensors.type() : UInt(tensors.dtype == DType::f32 ? 32 : 16);
        w.set_type(type);
        norm_weight.set_type(type);
        panels.set_type(held().type() == tensors.type() ? type : held().type());
    }

    void generate() {
        const Expr packed_column = column + panel * panel_width;
        const auto packed = [&](const Expr &input) {
            const Expr stored = transposed ? w(input, packed_column) : w(packed_column, input);
            return fold ? folded(tensors.storage(), stored, tensors.storage().widen(norm_weight(input)), offset)
                        : stored;
        };
        element(row, column, panel) = held().hold(row, packed);
        panels(column, row, panel) = element(row, column, panel);
    }

    void schedule() {
        begin_at_zero(w, norm_weight, panels);
        panels.dim(0).set_extent(panel_width);
        panels.dim(1).set_stride(panel_width);
        tensors.begin_schedule(*this);
        schedules::pack({element, panels, column, row, panel, panels.dim(1).extent(), held().inputs(), transposed},
                        params, get_target());
    }

private:
    Panels held() const { return {tensors.dtype, tensors.storage()}; }

    Var column{"column"}, row{"row"}, panel{"panel"};
    Func element{"element"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Pack, pack)
