// Elementwise activations and their derivatives: y = f(x).
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

class ActivationKernel : public Generator<ActivationKernel> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    GeneratorParam<bool> words{"words", false};  // see row_storage.h
    GeneratorParam<std::string> function{"function", "gelu"};
    schedules::ElementwiseParams params;

    Input<Buffer<void, 2>> x{"x"};
    Input<float> beta{"beta"};
    Output<Buffer<void, 2>> y{"y"};

    void configure() {
        x.set_type(storage().type());
        y.set_type(storage().type());
    }

    void generate() {
        const auto element = [&](const ElementAccess &access, const Expr &i) {
            const Expr value = access.load([&](Expr index) { return x(index, t); }, i);
            const Expr result = strict_float(activation(function, get_target(), dtype, value, beta));
            // Swish takes the sign of beta out of its bits.
            return function.value() == "swish" ? storage().with_sign_set(result) : result;
        };
        stages = define_elementwise(y, d, t, element, dtype, words, params, get_target(), using_autoscheduler());
    }

    void schedule() {
        keep_roundings(get_pipeline(), get_target());
        if (!using_autoscheduler()) {
            schedule_elementwise(stages, words, params, get_target(), get_pipeline(), x, y);
        }
    }

private:
    RowStorage storage() const { return RowStorage(dtype, get_target(), words); }

    Var d{"d"}, t{"t"};
    schedules::Elementwise stages;
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::ActivationKernel, activation)
