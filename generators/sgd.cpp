// A step of stochastic gradient descent in place, in the order of torch.optim.SGD, each operation rounded:
//
//   g = scale gradient + decay p     b = momentum b + g     p -= lr b, or with Nesterov's momentum lr (g + momentum b)
//
// Without momentum there is no b, and p -= lr g. A decay of 0 is left out, so that Inf in p stays what it is.
#include "Halide.h"

#include "schedules/elementwise_kernel.h"

namespace halyard {
namespace {

using namespace Halide;

class Sgd : public Generator<Sgd> {
public:
    ElementwiseKernel kernel;
    GeneratorParam<bool> with_momentum{"with_momentum", false};
    Input<Buffer<void, 2>> parameter{"parameter"}, gradient{"gradient"};
    Input<Buffer<>> *buffer = nullptr;  // of the momentum
    Input<float> *momentum = nullptr;
    Input<bool> *nesterov = nullptr;
    Input<float> gradient_scale{"gradient_scale"}, decay{"decay"}, lr{"lr"};

    void configure() {
        kernel.configure(*this, parameter, gradient);
        if (with_momentum) {
            buffer = kernel.tensors.add_input(*this, "buffer", 2);
            momentum = add_input<float>("momentum");
            nesterov = add_input<bool>("nesterov");
        }
        kernel.add_outputs(*this, "updated", with_momentum ? 2 : 1);
    }

    void generate() {
        const Element g = [&](const ElementAccess &at, const Expr &i) {
            const Expr scaled = at(gradient, i) * gradient_scale;
            return select(decay == 0.0f, scaled, scaled + decay * at(parameter, i));
        };
        const Element b = [&](const ElementAccess &at, const Expr &i) { return *momentum * at(*buffer, i) + g(at, i); };
        const Element p = [&](const ElementAccess &at, const Expr &i) {
            const Expr direction =
                with_momentum ? select(*nesterov, g(at, i) + *momentum * b(at, i), b(at, i)) : g(at, i);
            return at(parameter, i) - lr * direction;
        };
        if (with_momentum) {
            kernel.write_each({p, b});
        } else {
            kernel.write_each({p});
        }
    }

    void schedule() { kernel.schedule(*this); }
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Sgd, sgd)
