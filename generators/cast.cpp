// Conversion between storage types, through f32: y = round(x). Equal types copy bits.
#include "Halide.h"

#include "schedules/elementwise.h"
#include "storage.h"

namespace halyard {
namespace {

using namespace Halide;

class Cast : public Generator<Cast> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    GeneratorParam<DType> to{"to", DType::f16, dtype_names};
    schedules::ElementwiseParams params;

    Input<Buffer<void, 2>> x{"x"};
    Output<Buffer<void, 2>> y{"y"};

    void configure() {
        x.set_type(storage().type());
        y.set_type(Storage(to, get_target()).type());
    }

    void generate() {
        const Storage source = storage(), target(to, get_target());
        y(d, t) = dtype.value() == to.value() ? Expr(x(d, t)) : target.narrow(strict_float(source.widen(x(d, t))));
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

HALIDE_REGISTER_GENERATOR(halyard::Cast, cast)
