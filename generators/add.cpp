// Elementwise sum: y = a + b.
#include "Halide.h"

#include "elementwise.h"
#include "row_storage.h"
#include "schedules/elementwise.h"
#include "schedules/gpu.h"

namespace halyard {
namespace {

using namespace Halide;

class Add : public Generator<Add> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    GeneratorParam<bool> words{"words", false};  // see row_storage.h
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
        const auto element = [&](const ElementAccess &access, const Expr &i) {
            return strict_float(access.load([&](Expr index) { return a(index, t); }, i) +
                                access.load([&](Expr index) { return b(index, t); }, i));
        };
        stages = define_elementwise(y, d, t, element, dtype, words, params, get_target(), using_autoscheduler());
    }

    void schedule() {
        if (!using_autoscheduler()) {
            schedule_elementwise(stages, words, params, get_target(), get_pipeline(), a, b, y);
        }
    }

private:
    RowStorage storage() const { return RowStorage(dtype, get_target(), words); }

    Var d{"d"}, t{"t"};
    schedules::Elementwise stages;
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Add, add)
