// Gated linear units after the products (Dauphin et al. 2016, Shazeer 2020): y = f(gate) * up, gate and up in two
// tensors or interleaved g0 u0 g1 u1 ... in one.
#include "Halide.h"

#include "activations.h"
#include "schedules/elementwise_kernel.h"

namespace halyard {
namespace {

using namespace Halide;

class GatedUnit : public Generator<GatedUnit> {
public:
    ElementwiseKernel kernel;
    GeneratorParam<std::string> function{"function", "silu"};  // "identity" for the bilinear unit
    GeneratorParam<bool> interleaved{"interleaved", false};
    Input<Buffer<void, 2>> gate{"gate"};  // or both, interleaved
    Input<Buffer<>> *up = nullptr;
    Input<float> *beta = nullptr;
    Output<Buffer<void, 2>> y{"y"};

    void configure() {
        kernel.configure(*this, gate, y);
        if (!interleaved) {
            up = kernel.tensors.add_input(*this, "up", 2);
        }
        beta = add_input<float>("beta");
    }

    void generate() {
        kernel.write(y, [&](const ElementAccess &at, const Expr &i) {
            const Expr g = interleaved ? at(gate, 2 * i) : at(gate, i);
            const Expr u = interleaved ? at(gate, 2 * i + 1) : at(*up, i);
            return activation(function, get_target(), kernel.tensors.dtype, g, *beta) * u;
        });
    }

    void schedule() { kernel.schedule(*this); }
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::GatedUnit, gated_unit)
