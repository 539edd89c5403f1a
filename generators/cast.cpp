// Conversion between storage types, through f32: y = round(x). Equal types copy bits.
#include "Halide.h"

#include "schedules/elementwise_kernel.h"

namespace halyard {
namespace {

using namespace Halide;

class Cast : public Generator<Cast> {
public:
    ElementwiseKernel kernel;
    GeneratorParam<DType> to{"to", DType::f16, dtype_names};
    Input<Buffer<void, 2>> x{"x"};
    Output<Buffer<void, 2>> y{"y"};

    void configure() {
        kernel.configure(*this, x);
        kernel.tensors.add(*this, y, to);
    }

    void generate() {
        const ElementAccess from = kernel.access(), into = kernel.access(to);
        const Element element = [&](const ElementAccess &, const Expr &i) { return from(x, i); };
        const bool equal = kernel.tensors.dtype.value() == to.value();
        kernel.write_stored(y, equal ? Expr(x(kernel.d, kernel.t)) : into.store_any(element, kernel.d));
    }

    void schedule() { kernel.schedule(*this); }
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Cast, cast)
