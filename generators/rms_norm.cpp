// RMSNorm (Zhang and Sennrich 2019) and its variants: epsilon outside the root, unit offset, partial RMSNorm.
#include "Halide.h"

#include "norm_statistics.h"
#include "schedules/row.h"
#include "storage.h"

namespace halyard {
namespace {

using namespace Halide;

class RmsNorm : public Generator<RmsNorm> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    GeneratorParam<bool> has_weight{"has_weight", true};
    schedules::RowParams params;

    Input<Buffer<void, 2>> x{"x"};
    Input<float> eps{"eps"};
    Input<bool> eps_outside_root{"eps_outside_root"};
    Input<float> weight_offset{"weight_offset"};  // 1 for weights stored as their difference from one, else 0
    Input<int> moment_width{"moment_width"};      // features that enter the mean square: d, or ceil(p d)
    Input<Buffer<>> *weight = nullptr;
    Output<Buffer<void, 2>> y{"y"};

    void configure() {
        const Type stored = storage().type();
        x.set_type(stored);
        y.set_type(stored);
        if (has_weight) {
            weight = add_input<Buffer<>>("weight", stored, 1);
        }
    }

    void generate() {
        width = y.dim(0).extent();
        x.dim(0).set_extent(width);
        const auto feature = [&](Expr i) { return storage().widen(x(i, t)); };

        statistics = rms_statistics(feature, moment_width, t, eps, eps_outside_root);
        Expr normalized = feature(d) * statistics.scale(t);
        if (has_weight) {
            normalized *= storage().widen((*weight)(d)) + weight_offset;
        }
        y(d, t) = storage().narrow_result(strict_float(normalized));
    }

    void schedule() {
        if (using_autoscheduler()) {
            return;
        }
        schedules::row({{statistics.sum_of_squares}, {statistics.scale}, y, d, t, width}, params, get_target());
    }

private:
    Storage storage() const { return Storage(dtype, get_target()); }

    Var d{"d"}, t{"t"};  // feature, token
    RmsStatistics statistics;
    Expr width;
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::RmsNorm, rms_norm)
