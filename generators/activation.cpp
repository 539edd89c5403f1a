// Elementwise activations and their derivatives: y = f(x).
#include "Halide.h"

#include "activations.h"
#include "schedules/elementwise.h"
#include "storage.h"

namespace halyard {
namespace {

using namespace Halide;

class ActivationKernel : public Generator<ActivationKernel> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
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
        const Math math(get_target());
        y(d, t) = storage().narrow_result(strict_float(activation(function, math, storage().widen(x(d, t)), beta)));
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

HALIDE_REGISTER_GENERATOR(halyard::ActivationKernel, activation)
