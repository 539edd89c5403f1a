// The backward pass of gated units, y = f(gate) * up: dgate = dy * up * f'(gate) and dup = dy * f(gate), in two tensors or
// interleaved dg0 du0 dg1 du1 ... in one.
#include "Halide.h"

#include "activations.h"
#include "schedules/elementwise_kernel.h"

namespace halyard {
namespace {

using namespace Halide;

class GatedUnitBackward : public Generator<GatedUnitBackward> {
public:
    ElementwiseKernel kernel;
    GeneratorParam<std::string> function{"function", "silu"};  // "identity" for the bilinear unit
    GeneratorParam<bool> interleaved{"interleaved", false};
    Input<Buffer<void, 2>> gate{"gate"};  // or both, interleaved
    Input<Buffer<>> *up = nullptr, *dy = nullptr;
    Input<float> *beta = nullptr;

    void configure() {
        kernel.configure(*this, gate);
        if (!interleaved) {
            up = kernel.tensors.add_input(*this, "up", 2);
        }
        dy = kernel.tensors.add_input(*this, "dy", 2);
        beta = add_input<float>("beta");
        kernel.add_outputs(*this, "gradient", interleaved ? 1 : 2);
    }

    void generate() {
        const auto gate_at = [&](const ElementAccess &at, const Expr &i) { return at(gate, interleaved ? 2 * i : i); };
        const auto up_at = [&](const ElementAccess &at, const Expr &i) {
            return interleaved ? at(gate, 2 * i + 1) : at(*up, i);
        };
        const auto f = [&](const Expr &x) { return activation_with_derivative(function, get_target(), x, *beta); };
        const Element dgate = [&](const ElementAccess &at, const Expr &i) {
            return at(*dy, i) * (up_at(at, i) * f(gate_at(at, i)).derivative);
        };
        const Element dup = [&](const ElementAccess &at, const Expr &i) {
            return at(*dy, i) * f(gate_at(at, i)).value;
        };
        if (interleaved) {
            kernel.write_interleaved(dgate, dup);
        } else {
            kernel.write_each({dgate, dup});
        }
    }

    void schedule() { kernel.schedule(*this); }
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::GatedUnitBackward, gated_unit_backward)
