// Elementwise sum: y = a + b.
#include "Halide.h"

#include "schedules/elementwise_kernel.h"

namespace halyard {
namespace {

using namespace Halide;

class Add : public Generator<Add> {
public:
    ElementwiseKernel kernel;
    Input<Buffer<void, 2>> a{"a"}, b{"b"};
    Output<Buffer<void, 2>> y{"y"};

    void configure() { kernel.configure(*this, a, b, y); }

    void generate() {
        kernel.write(y, [&](const ElementAccess &at, const Expr &i) { return at(a, i) + at(b, i); });
    }

    void schedule() { kernel.schedule(*this); }
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Add, add)
