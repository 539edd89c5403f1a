// Conversion between storage types, through f32: y = round(x). Equal types copy bits.
#include "Halide.h"

#include "elementwise.h"
#include "row_storage.h"
#include "schedules/elementwise.h"
#include "schedules/gpu.h"

namespace halyard {
namespace {

using namespace Halide;

class Cast : public Generator<Cast> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    GeneratorParam<DType> to{"to", DType::f16, dtype_names};
    GeneratorParam<bool> words{"words", false};  // see row_storage.h
    schedules::ElementwiseParams params;

    Input<Buffer<void, 2>> x{"x"};
    Output<Buffer<void, 2>> y{"y"};

    void configure() {
        x.set_type(storage(dtype).type());
        y.set_type(storage(to).type());
    }

    void generate() {
        const auto element = [&](Expr i) {
            return strict_float(storage(dtype).load([&](Expr index) { return x(index, t); }, i));
        };
        y(d, t) = dtype.value() == to.value() ? Expr(x(d, t)) : storage(to).store(element, d);
    }

    void schedule() {
        if (!using_autoscheduler()) {
            schedule_elementwise({y, d, t}, words, params, get_target(), get_pipeline(), x, y);
        }
    }

private:
    RowStorage storage(DType stored) const { return RowStorage(stored, get_target(), words); }

    Var d{"d"}, t{"t"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Cast, cast)
