// Gated linear units after the products (Dauphin et al. 2016, Shazeer 2020): y = f(gate) * up, gate and up in two
// tensors or interleaved g0 u0 g1 u1 ... in one.
#include "Halide.h"

#include "activations.h"
#include "schedules/elementwise.h"
#include "storage.h"

namespace halyard {
namespace {

using namespace Halide;

class GatedUnit : public Generator<GatedUnit> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    GeneratorParam<std::string> function{"function", "silu"};  // "identity" for the bilinear unit
    GeneratorParam<bool> interleaved{"interleaved", false};
    schedules::ElementwiseParams params;

    Input<Buffer<void, 2>> gate{"gate"};  // or both, interleaved
    Input<Buffer<>> *up = nullptr;
    Input<float> *beta = nullptr;
    Output<Buffer<void, 2>> y{"y"};

    void configure() {
        const Type stored = storage().type();
        gate.set_type(stored);
        y.set_type(stored);
        if (!interleaved) {
            up = add_input<Buffer<>>("up", stored, 2);
        }
        beta = add_input<float>("beta");
    }

    void generate() {
        const Math math(get_target());
        const Expr g = storage().widen(interleaved ? gate(2 * d, t) : gate(d, t));
        const Expr u = storage().widen(interleaved ? gate(2 * d + 1, t) : (*up)(d, t));
        const Expr activated = function.value() == "identity" ? g : activation(function, math, g, *beta);
        y(d, t) = storage().narrow_result(strict_float(activated * u));
    }

    void schedule() {
        if (using_autoscheduler()) {
            return;
        }
        schedules::elementwise({y, d, t}, params, get_target());
    }

private:
    Storage storage() const { return Storage(dtype, get_target()); }

    Var d{"d"}, t{"t"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::GatedUnit, gated_unit)
