// A step of Adam or AdamW in place (Kingma and Ba 2014, Loshchilov and Hutter 2017), in the order of torch.optim, each operation
// rounded:
//
//   g = scale gradient + coupled_decay p     m += (1 - beta1) (g - m)     v = beta2 v + ((1 - beta2) g) g
//   p = (p - decay p) - (step_size m) / (sqrt(v) + eps)
//
// A decay of 0 is left out, so that Inf in p stays what it is.
#include "Halide.h"

#include "schedules/elementwise_kernel.h"

namespace halyard {
namespace {

using namespace Halide;

class Adamw : public Generator<Adamw> {
public:
    ElementwiseKernel kernel;
    Input<Buffer<void, 2>> parameter{"parameter"}, gradient{"gradient"}, first_moment{"first_moment"},
        second_moment{"second_moment"};
    Input<float> gradient_scale{"gradient_scale"}, coupled_decay{"coupled_decay"}, decay{"decay"};
    Input<float> rest_of_beta1{"rest_of_beta1"}, beta2{"beta2"}, rest_of_beta2{"rest_of_beta2"};  // rest: 1 - beta
    Input<float> step_size{"step_size"}, eps{"eps"};

    void configure() {
        kernel.configure(*this, parameter, gradient, first_moment, second_moment);
        kernel.add_outputs(*this, "updated", 3);
    }

    void generate() {
        const Element g = [&](const ElementAccess &at, const Expr &i) {
            const Expr scaled = at(gradient, i) * gradient_scale;
            return select(coupled_decay == 0.0f, scaled, scaled + coupled_decay * at(parameter, i));
        };
        const Element m = [&](const ElementAccess &at, const Expr &i) {
            return at(first_moment, i) + rest_of_beta1 * (g(at, i) - at(first_moment, i));
        };
        const Element v = [&](const ElementAccess &at, const Expr &i) {
            return beta2 * at(second_moment, i) + rest_of_beta2 * g(at, i) * g(at, i);
        };
        const Element p = [&](const ElementAccess &at, const Expr &i) {
            const Expr before = at(parameter, i);
            const Expr kept = select(decay == 0.0f, before, before - decay * before);
            return kept - step_size * m(at, i) / (sqrt(v(at, i)) + eps);
        };
        kernel.write_each({p, m, v});
    }

    void schedule() { kernel.schedule(*this); }
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Adamw, adamw)
