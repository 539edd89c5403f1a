// Elementwise activations and their derivatives: y = f(x).
#include "Halide.h"

#include "activations.h"
#include "schedules/elementwise_kernel.h"

namespace halyard {
namespace {

using namespace Halide;

class ActivationKernel : public Generator<ActivationKernel> {
public:
    ElementwiseKernel kernel;
    GeneratorParam<std::string> function{"function", "gelu"};
    Input<Buffer<void, 2>> x{"x"};
    Input<float> beta{"beta"};
    Output<Buffer<void, 2>> y{"y"};

    void configure() { kernel.configure(*this, x, y); }

    void generate() {
        kernel.write(y, [&](const ElementAccess &at, const Expr &i) {
            const Expr result = activation(function, get_target(), kernel.tensors.dtype, at(x, i), beta);
            // Swish takes the sign of beta out of its bits.
            return function.value() == "swish" ? at.with_sign_set(result) : result;
        });
    }

    void schedule() { kernel.schedule(*this); }
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::ActivationKernel, activation)
