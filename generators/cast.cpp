// Conversion between storage types, through f32: y = round(x). Equal types copy bits.
#include "Halide.h"

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
        if (using_autoscheduler()) {
            return;
        }
        if (!get_target().has_gpu_feature()) {
            schedules::elementwise({y, d, t}, params, get_target(), get_pipeline());
            return;
        }
        if (words) {
            schedules::gpu::promise_cells(x, y);
        }
        schedules::gpu::elementwise({y, d, t}, words, get_target());
    }

private:
    RowStorage storage(DType stored) const { return RowStorage(stored, get_target(), words); }

    Var d{"d"}, t{"t"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Cast, cast)
