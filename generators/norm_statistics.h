// What the norms know of a row before they write it. The norm kernels and the statistics kernels share it, so that a
// norm deferred past a matrix product has the bits of one that is not.
#ifndef HALYARD_GENERATORS_NORM_STATISTICS_H
#define HALYARD_GENERATORS_NORM_STATISTICS_H

#include "Halide.h"
#include "row_reduction.h"

namespace halyard {

/** RMSNorm: scale(t) = 1/sqrt(mean square + eps), or 1/(sqrt(mean square) + eps). */
struct RmsStatistics {
    RowReduction sum_of_squares;
    Halide::Func scale{"scale"};
};

/** `paired` and `vector` as for reduce_row. */
inline RmsStatistics rms_statistics(const Feature &feature, Halide::Expr width, Halide::Var t, Halide::Expr eps,
                                    Halide::Expr eps_outside_root, const RowThreads *threads = nullptr,
                                    const Feature &paired = nullptr, int vector = 0) {
    using namespace Halide;
    constexpr int lanes = 64;
    RmsStatistics s;
    s.sum_of_squares = reduce_row(
        "sum_of_squares", width, lanes, t, {0.0f}, feature,
        [](const Values &sum, const Expr &x) { return Values{sum[0] + x * x}; }, exact_sum, threads, paired, vector);

    const Expr per_feature = strict_float(1.0f / cast<float>(width));
    const Expr mean_square = s.sum_of_squares.result(t) * per_feature;
    const Expr root = select(eps_outside_root, sqrt(mean_square) + eps, sqrt(mean_square + eps));
    // A row of zeros with eps = 0 has no direction: it stays zero. NaN passes through the comparison.
    s.scale(t) = strict_float(select(root == 0.0f, 0.0f, 1.0f / root));
    return s;
}

/** LayerNorm: mean and variance come from one pass over x - p, p a pivot near the mean ("shifted data", Chan, Golub,
 * LeVeque 1983): e = x - p,   shift = mean(e),   variance = mean(e^2) - shift^2,   y = (e - shift) / sqrt(variance +
 * eps) The pivot is the mean of the row's first 64 features. Where |mean| >> deviation, e is exact by Sterbenz' lemma,
 * so nothing of the deviation is lost, as it is in mean(x^2) - mean(x)^2 or in x - mean with a rounded mean. The
 * subtraction cancels by a factor of 1 + (mean - p)^2 / variance, 1 + 1/64 for independent features and never more than
 *  1 + d / 64, which is also the growth of the error of a sum over 64 lanes. A third pass that centres the variance
 * costs a fifth of the time. */
struct LayerStatistics {
    RowReduction pivot_sum, moments;
    Halide::Func pivot{"pivot"};    // p
    Halide::Func mean_e{"mean_e"};  // the mean is p + mean_e
    Halide::Func scale{"scale"};    // 1/sqrt(variance + eps)
};

/** `paired` and `vector` as for reduce_row. */
inline LayerStatistics layer_statistics(const Feature &feature, Halide::Expr width, Halide::Var t, Halide::Expr eps,
                                        const RowThreads *threads = nullptr, const Feature &paired = nullptr,
                                        int vector = 0) {
    using namespace Halide;
    constexpr int pivot_features = 64;
    // Half as many lanes as where one sum is kept: the accumulators of both then fit AVX2's registers.
    constexpr int lanes = 32;
    LayerStatistics s;
    const Expr per_feature = strict_float(1.0f / cast<float>(width));
    // On a GPU, where a second pass over the row costs little, it is the mean of all features.
    const Expr pivot_width = threads ? width : min(width, pivot_features);
    s.pivot_sum = reduce_row(
        "pivot_sum", pivot_width, pivot_features, t, {0.0f}, feature,
        [](const Values &partial, const Expr &x) { return Values{partial[0] + x}; }, exact_sum, threads, nullptr,
        vector);
    s.pivot(t) = strict_float(s.pivot_sum.result(t) / cast<float>(pivot_width));

    s.moments = reduce_row(
        "moments", width, lanes, t, {0.0f, 0.0f}, feature,
        [&](const Values &partial, const Expr &x) {
            const Expr e = strict_float(x - s.pivot(t));
            return Values{partial[0] + e, partial[1] + e * e};
        },
        exact_sum, threads, paired, vector);
    const Values moment = values_at(s.moments.result, {t});
    s.mean_e(t) = strict_float(moment[0] * per_feature);
    const Expr mean_square = strict_float(moment[1] * per_feature);
    // Squares that overflow are an infinite variance, not the difference of two infinities.
    const Expr variance =
        select(is_finite(mean_square), max(mean_square - s.mean_e(t) * s.mean_e(t), 0.0f), mean_square);
    const Expr deviation = sqrt(variance + eps);
    // A constant row with eps = 0 has no direction: it becomes the bias. A row with NaN or Inf becomes NaN.
    const Expr nan = reinterpret<float>(cast<uint32_t>(0x7fc00000));
    s.scale(t) = strict_float(select(!is_finite(s.mean_e(t)), nan, deviation == 0.0f, 0.0f, 1.0f / deviation));
    return s;
}

}  // namespace halyard

#endif
