// Elementwise sum: y = a + b.
#include "Halide.h"

#include "schedules/elementwise.h"
#include "storage.h"

namespace halyard {
namespace {

using namespace Halide;

class Add : public Generator<Add> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    schedules::ElementwiseParams params;

    Input<Buffer<void, 2>> a{"a"}, b{"b"};
    Output<Buffer<void, 2>> y{"y"};

    void configure() {
        for (auto *input : {&a, &b}) {
            input->set_type(storage().type());
        }
        y.set_type(storage().type());
    }

    void generate() {
        y(d, t) = storage().narrow_result(strict_float(storage().widen(a(d, t)) + storage().widen(b(d, t))));
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

HALIDE_REGISTER_GENERATOR(halyard::Add, add)
