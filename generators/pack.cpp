// Packing of weights: a matrix as it comes into panels of 16 columns, input by input (runtime/weights.h), and the sums
// over the inputs that the packed form carries.
#include "Halide.h"

#include "folding.h"
#include "runtime/layout/matmul.h"
#include "schedules/kernel_tensors.h"
#include "schedules/pack.h"

namespace halyard {
namespace {

using namespace Halide;

// panels(column, input, panel) = w, moved as bits; or, folded, times norm_weight + offset of the input.
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
        panels.set_type(type);
    }

    void generate() {
        const Expr packed_column = column + panel * panel_width;
        const Expr stored = transposed ? w(input, packed_column) : w(packed_column, input);
        element(input, column, panel) = fold ? folded(tensors.storage(), stored, norm_weight(input), offset) : stored;
        panels(column, input, panel) = element(input, column, panel);
    }

    void schedule() {
        w.dim(0).set_min(0);
        w.dim(1).set_min(0);
        norm_weight.dim(0).set_min(0);
        panels.dim(0).set_bounds(0, panel_width);
        panels.dim(1).set_min(0).set_stride(panel_width);
        panels.dim(2).set_min(0);
        if (tensors.begin_schedule(*this)) {
            schedules::pack({element, panels, column, input, panel, panels.dim(1).extent(), transposed}, params,
                            get_target());
        }
    }

private:
    Var column{"column"}, input{"input"}, panel{"panel"};
    Func element{"element"};
};

// sums(column) = so_far(column) + the sum over the inputs, in their order, of the panel or of the panel times factor.
// The products of two f32 are exact in f64.
class PackSums : public Generator<PackSums> {
public:
    KernelTensors tensors;
    GeneratorParam<bool> weighted{"weighted", false};
    schedules::PackParams params;  // of the family; it has nothing to choose here

    Input<Buffer<void, 2>> panel{"panel"};    // panel(column, input)
    Input<Buffer<void, 1>> factor{"factor"};  // factor(input)
    Input<int> inputs{"inputs"};
    Input<Buffer<double, 1>> so_far{"so_far"};  // may be sums
    Output<Buffer<double, 1>> sums{"sums"};

    void configure() { tensors.configure(*this, panel, factor); }

    void generate() {
        const RDom input(0, inputs, "input");
        k = input.x;
        const Storage storage = tensors.storage();
        element(column, i) = storage.widen(panel(column, i));
        Expr term = cast<double>(element(column, k));
        if (weighted) {
            term *= cast<double>(storage.widen(factor(k)));
        }
        sum(column) = so_far(column);
        sum(column) = strict_float(sum(column) + term);
        sums(column) = sum(column);
    }

    void schedule() {
        panel.dim(0).set_bounds(0, panel_width);
        panel.dim(1).set_min(0).set_stride(panel_width);
        factor.dim(0).set_min(0);
        so_far.dim(0).set_bounds(0, panel_width);
        sums.dim(0).set_bounds(0, panel_width);
        if (tensors.begin_schedule(*this)) {
            schedules::pack_sums({element, sum, sums, k, column}, get_target());
        }
    }

private:
    Var column{"column"}, i{"i"};
    RVar k;
    Func element{"element"}, sum{"sum"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Pack, pack)
HALIDE_REGISTER_GENERATOR(halyard::PackSums, pack_sums)
