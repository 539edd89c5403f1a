// LayerNorm (Ba, Kiros, Hinton 2016).
//
// The variance is centred, and the mean is carried in two parts. The f32 mean m of a row with |mean| >> deviation is
// off by up to half an ulp of the mean, which may be much of the deviation. The second pass therefore also sums what
// m missed: with e = x - m (exact where it matters, by Sterbenz' lemma),
//     correction = mean(e),   variance = mean(e^2) - correction^2,   y = (e - correction) / sqrt(variance + eps)
// which is the textbook "corrected two-pass" variance (Chan, Golub, LeVeque 1983) applied to the output as well.
#include "Halide.h"

#include "row_reduction.h"
#include "schedules/row.h"
#include "storage.h"

namespace halyard {
namespace {

using namespace Halide;

// The second pass has two sums, so half the lanes: the accumulators of both then fit AVX2's registers.
constexpr int mean_lanes = 64, moment_lanes = 32;

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
        const Expr per_feature = strict_float(1.0f / cast<float>(width));
        const auto feature = [&](Expr i) { return storage().widen(x(i, t)); };

        sum = reduce_row(
            "sum", width, mean_lanes, t, {0.0f},
            [&](const Values &partial, Expr i) { return Values{partial[0] + feature(i)}; }, exact_sum);
        mean(t) = strict_float(sum.result(t) * per_feature);

        moments = reduce_row(
            "moments", width, moment_lanes, t, {0.0f, 0.0f},
            [&](const Values &partial, Expr i) {
                const Expr deviation = strict_float(feature(i) - mean(t));
                return Values{partial[0] + deviation, partial[1] + deviation * deviation};
            },
            exact_sum);
        const Values moment = values_at(moments.result, {t});
        const Expr correction = strict_float(moment[0] * per_feature);
        const Expr variance = max(moment[1] * per_feature - correction * correction, 0.0f);
        const Expr deviation = sqrt(variance + eps);
        // A constant row with eps = 0 has no direction: it becomes the bias. max() may drop a NaN, so it is asked for.
        scale(t) = strict_float(select(is_nan(moment[1]), moment[1], deviation == 0.0f, 0.0f, 1.0f / deviation));
        shift(t) = strict_float(-correction * scale(t));

        Expr normalized = math.fma(feature(d) - mean(t), scale(t), shift(t));
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
        schedules::row({{sum, moments}, {mean, scale, shift}, y, d, t, width}, params, get_target());
    }

private:
    Storage storage() const { return Storage(dtype, get_target()); }

    Var d{"d"}, t{"t"};  // feature, token
    RowReduction sum, moments;
    Func mean{"mean"}, scale{"scale"}, shift{"shift"};
    Expr width;
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::LayerNorm, layer_norm)
