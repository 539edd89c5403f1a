// LayerNorm (Ba, Kiros, Hinton 2016).
//
// Mean and variance come from one pass over x - p, p a pivot near the mean ("shifted data", Chan, Golub, LeVeque 1983):
//     e = x - p,   shift = mean(e),   variance = mean(e^2) - shift^2,   y = (e - shift) / sqrt(variance + eps)
// The pivot is the mean of the row's first 64 features. Where |mean| >> deviation, e is exact by Sterbenz' lemma, so
// nothing of the deviation is lost, as it is in mean(x^2) - mean(x)^2 or in x - mean with a rounded mean. The subtraction
// cancels by a factor of 1 + (mean - p)^2 / variance, 1 + 1/64 for independent features and never more than
// 1 + d / 64, which is also the growth of the error of a sum over 64 lanes. A third pass that centres the variance costs a fifth of the time.
#include "Halide.h"

#include "row_reduction.h"
#include "schedules/row.h"
#include "storage.h"

namespace halyard {
namespace {

using namespace Halide;

constexpr int pivot_features = 64;
// Half as many lanes as where one sum is kept: the accumulators of both then fit AVX2's registers.
constexpr int lanes = 32;

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

        const Expr pivot_width = min(width, pivot_features);
        pivot_sum = reduce_row(
            "pivot_sum", pivot_width, pivot_features, t, {0.0f},
            [&](const Values &partial, Expr i) { return Values{partial[0] + feature(i)}; }, exact_sum);
        pivot(t) = strict_float(pivot_sum.result(t) / cast<float>(pivot_width));

        moments = reduce_row(
            "moments", width, lanes, t, {0.0f, 0.0f},
            [&](const Values &partial, Expr i) {
                const Expr e = strict_float(feature(i) - pivot(t));
                return Values{partial[0] + e, partial[1] + e * e};
            },
            exact_sum);
        const Values moment = values_at(moments.result, {t});
        const Expr mean_e = strict_float(moment[0] * per_feature);
        const Expr mean_square = strict_float(moment[1] * per_feature);
        // Squares that overflow are an infinite variance, not the difference of two infinities.
        const Expr variance = select(is_finite(mean_square), max(mean_square - mean_e * mean_e, 0.0f), mean_square);
        const Expr deviation = sqrt(variance + eps);
        // A constant row with eps = 0 has no direction: it becomes the bias. A row with NaN or Inf becomes NaN.
        const Expr nan = reinterpret<float>(cast<uint32_t>(0x7fc00000));
        scale(t) = strict_float(select(!is_finite(mean_e), nan, deviation == 0.0f, 0.0f, 1.0f / deviation));
        shift(t) = strict_float(-mean_e * scale(t));

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
        schedules::row({{pivot_sum, moments}, {pivot, scale, shift}, y, d, t, width}, params, get_target());
    }

private:
    Storage storage() const { return Storage(dtype, get_target()); }

    Var d{"d"}, t{"t"};  // feature, token
    RowReduction pivot_sum, moments;
    Func pivot{"pivot"}, scale{"scale"}, shift{"shift"};
    Expr width;
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::LayerNorm, layer_norm)
