// LayerNorm (Ba, Kiros, Hinton 2016).
#include "Halide.h"

#include "norm_statistics.h"
#include "schedules/row.h"
#include "storage.h"

namespace halyard {
namespace {

using namespace Halide;

class LayerNorm : public Generator<LayerNorm> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    GeneratorParam<bool> has_weight{"has_weight", true};
    GeneratorParam<bool> has_bias{"has_bias", true};
    schedules::RowParams params;

    Input<Buffer<void, 2>> x{"x"};
    Input<float> eps{"eps"};
    Input<Buffer<>> *weight = nullptr;
    Input<Buffer<>> *bias = nullptr;
    Output<Buffer<void, 2>> y{"y"};

    void configure() {
        const Type stored = storage().type();
        x.set_type(stored);
        y.set_type(stored);
        if (has_weight) {
            weight = add_input<Buffer<>>("weight", stored, 1);
        }
        if (has_bias) {
            bias = add_input<Buffer<>>("bias", stored, 1);
        }
    }

    void generate() {
        const Math math(get_target().with_feature(Target::StrictFloat));
        width = y.dim(0).extent();
        x.dim(0).set_extent(width);
        const auto feature = [&](Expr i) { return storage().widen(x(i, t)); };

        statistics = layer_statistics(feature, width, t, eps);
        const Func pivot = statistics.pivot, mean_e = statistics.mean_e, scale = statistics.scale;
        shift(t) = strict_float(math.minus(mean_e(t)) * scale(t));

        Expr normalized = math.fma(feature(d) - pivot(t), scale(t), shift(t));
        if (has_weight && has_bias) {
            normalized = math.fma(normalized, storage().widen((*weight)(d)), storage().widen((*bias)(d)));
        } else if (has_weight) {
            normalized *= storage().widen((*weight)(d));
        } else if (has_bias) {
            normalized += storage().widen((*bias)(d));
        }
        y(d, t) = storage().narrow_result(strict_float(normalized));
    }

    void schedule() {
        if (using_autoscheduler()) {
            return;
        }
        schedules::row({{statistics.pivot_sum, statistics.moments},
                        {statistics.pivot, statistics.mean_e, statistics.scale, shift},
                        y, d, t, width},
                       params, get_target());
    }

private:
    Storage storage() const { return Storage(dtype, get_target()); }

    Var d{"d"}, t{"t"};  // feature, token
    LayerStatistics statistics;
    Func shift{"shift"};
    Expr width;
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::LayerNorm, layer_norm)
