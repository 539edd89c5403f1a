// Elementwise activations and their derivatives: y = f(x).
#include "Halide.h"

#include "activations.h"
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
        const Math math(get_target());
        const auto element = [&](Expr i) {
            const Expr value = storage().load([&](Expr index) { return x(index, t); }, i);
            const Expr result = strict_float(activation(function, math, value, beta));
            // Swish takes the sign of beta out of its bits.
            return function.value() == "swish" ? storage().with_sign_set(result) : result;
        };
        y(d, t) = storage().store_result(element, d);
    }

    void schedule() {
        if (using_autoscheduler()) {
            return;
        }
        if (!get_target().has_gpu_feature()) {
            schedules::elementwise({y, d, t}, params, get_target());
            return;
        }
        if (words) {
            schedules::gpu::promise_cells(x, y);
        }
        schedules::gpu::elementwise({y, d, t}, words, get_target());
    }

private:
    RowStorage storage() const { return RowStorage(dtype, get_target(), words); }

    Var d{"d"}, t{"t"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::ActivationKernel, activation)
