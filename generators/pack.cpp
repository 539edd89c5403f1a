// Packing of weights: a matrix as it comes into panels of 16 columns, input by input (runtime/weights.h), and the sums
// over the inputs that the packed form carries.
#include "Halide.h"

#include "runtime/layout/matmul.h"
#include "schedules/pack.h"
#include "storage.h"

namespace halyard {
namespace {

using namespace Halide;

// panels(column, input, panel) = w, moved as bits; or, folded, times norm_weight + offset of the input.
class Pack : public Generator<Pack> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    GeneratorParam<bool> transposed{"transposed", false};  // w(input, column) instead of w(column, input)
    GeneratorParam<bool> folded{"folded", false};
    schedules::PackParams params;

    Input<Buffer<void, 2>> w{"w"};
    Input<Buffer<void, 1>> norm_weight{"norm_weight"};
    Input<float> offset{"offset"};
    Output<Buffer<void, 3>> panels{"panels"};

    void configure() {
        const Type type = folded ? storage().type() : UInt(dtype.value() == DType::f32 ? 32 : 16);
        w.set_type(type);
        norm_weight.set_type(type);
        panels.set_type(type);
    }

    void generate() {
        const Expr packed_column = column + panel * panel_width;
        const Expr stored = transposed ? w(input, packed_column) : w(packed_column, input);
        element(input, column, panel) = folded ? scaled(stored) : stored;
        panels(column, input, panel) = element(input, column, panel);
    }

    void schedule() {
        w.dim(0).set_min(0);
        w.dim(1).set_min(0);
        norm_weight.dim(0).set_min(0);
        panels.dim(0).set_bounds(0, panel_width);
        panels.dim(1).set_min(0).set_stride(panel_width);
        panels.dim(2).set_min(0);
        if (using_autoscheduler()) {
            return;
        }
        schedules::pack({element, panels, column, input, panel, panels.dim(1).extent(), transposed}, params,
                        get_target());
    }

private:
    Storage storage() const { return Storage(dtype, get_target()); }

    Expr scaled(const Expr &stored) const {
        const Expr factor = strict_float(storage().widen(norm_weight(input)) + offset);
        const Expr product = reinterpret<uint32_t>(strict_float(storage().widen(stored) * factor));
        // One NaN, so that the bytes do not depend on the operand that an instruction takes it from.
        const Expr canonical = select((product & 0x7fffffff) > 0x7f800000, cast<uint32_t>(0x7fc00000), product);
        return storage().narrow_result(reinterpret<float>(canonical));
    }

    Var column{"column"}, input{"input"}, panel{"panel"};
    Func element{"element"};
};

// sums(column) = so_far(column) + the sum over the inputs, in their order, of the panel or of the panel times factor.
// The products of two f32 are exact in f64.
class PackSums : public Generator<PackSums> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    GeneratorParam<bool> weighted{"weighted", false};
    schedules::PackParams params;  // of the family; it has nothing to choose here

    Input<Buffer<void, 2>> panel{"panel"};    // panel(column, input)
    Input<Buffer<void, 1>> factor{"factor"};  // factor(input)
    Input<int> inputs{"inputs"};
    Input<Buffer<double, 1>> so_far{"so_far"};  // may be sums
    Output<Buffer<double, 1>> sums{"sums"};

    void configure() {
        panel.set_type(storage().type());
        factor.set_type(storage().type());
    }

    void generate() {
        const RDom input(0, inputs, "input");
        k = input.x;
        element(column, i) = storage().widen(panel(column, i));
        Expr term = cast<double>(element(column, k));
        if (weighted) {
            term *= cast<double>(storage().widen(factor(k)));
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
        if (using_autoscheduler()) {
            return;
        }
        schedules::pack_sums({element, sum, sums, k, column}, get_target());
    }

private:
    Storage storage() const { return Storage(dtype, get_target()); }

    Var column{"column"}, i{"i"};
    RVar k;
    Func element{"element"}, sum{"sum"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Pack, pack)
HALIDE_REGISTER_GENERATOR(halyard::PackSums, pack_sums)
