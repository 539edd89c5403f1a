// Gated linear units after the products (Dauphin et al. 2016, Shazeer 2020): y = f(gate) * up, gate and up in two
// tensors or interleaved g0 u0 g1 u1 ... in one.
#include "Halide.h"

#include "activations.h"
#include "elementwise.h"
#include "roundings.h"
#include "row_storage.h"
#include "schedules/elementwise.h"
#include "schedules/gpu.h"

namespace halyard {
namespace {

using namespace Halide;

class GatedUnit : public Generator<GatedUnit> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    GeneratorParam<bool> words{"words", false};                // see row_storage.h
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
        const auto element = [&](const ElementAccess &access, const Expr &i) {
            const auto first = [&](Expr place) {
                return access.load([&](Expr index) { return gate(index, t); }, place);
            };
            const auto second = [&](Expr place) {
                return access.load([&](Expr index) { return (*up)(index, t); }, place);
            };
            const Expr g = interleaved ? first(2 * i) : first(i);
            const Expr u = interleaved ? first(2 * i + 1) : second(i);
            const Expr activated =
                function.value() == "identity" ? g : activation(function, get_target(), dtype, g, *beta);
            return strict_float(activated * u);
        };
        stages = define_elementwise(y, d, t, element, dtype, words, params, get_target(), using_autoscheduler());
    }

    void schedule() {
        keep_roundings(get_pipeline(), get_target());
        if (!using_autoscheduler()) {
            schedule_elementwise(stages, words, params, get_target(), get_pipeline(), gate, y, up);
        }
    }

private:
    RowStorage storage() const { return RowStorage(dtype, get_target(), words); }

    Var d{"d"}, t{"t"};
    schedules::Elementwise stages;
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::GatedUnit, gated_unit)
