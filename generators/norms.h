// RMSNorm and LayerNorm: what they know of a row before they write it, and their formulas. The kernels of the norms, those
// that add first and those of the statistics alone share them, so that a norm deferred past a matrix product or fused with a
// sum has the bits of one that is not.
#ifndef HALYARD_GENERATORS_NORMS_H
#define HALYARD_GENERATORS_NORMS_H

#include "Halide.h"
#include "fma.h"
#include "schedules/row_kernel.h"

namespace halyard {

/** What RMSNorm knows of a row before it writes it. */
struct RmsStatistics {
    Halide::Expr mean_square;
    Halide::Expr scale;  // 1/sqrt(mean square + eps), or 1/(sqrt(mean square) + eps)
};

inline RmsStatistics rms_statistics(RowKernel &row, const Element &feature, const Halide::Expr &width,
                                    const Halide::Expr &eps, const Halide::Expr &eps_outside_root) {
    using namespace Halide;
    const Expr sum =
        row.reduce("sum_of_squares", width, 64, sums_of(1, [](const Expr &x) { return Values{x * x}; }), feature);
    const Expr per_feature = strict_float(1.0f / cast<float>(width));
    const Expr mean_square = sum * per_feature;
    const Expr root = select(eps_outside_root, sqrt(mean_square) + eps, sqrt(mean_square + eps));
    // A row of zeros with eps = 0 has no direction: it stays zero. NaN passes through the comparison.
    return {mean_square, row.scalar("scale", select(root == 0.0f, 0.0f, 1.0f / root))};
}

/** y = x scale (weight + offset) */
inline Element rms_norm(const Element &x, const Halide::Expr &scale, const OptionalVector &weight,
                        const Halide::Expr &offset) {
    return [x, scale, &weight, offset](const ElementAccess &at, const Halide::Expr &i) {
        const Halide::Expr normalized = x(at, i) * scale;
        return weight ? normalized * (at(weight, i) + offset) : normalized;
    };
}

/** LayerNorm: mean and variance come from one pass over x - p, p a pivot near the mean ("shifted data", Chan, Golub,
 * LeVeque 1983): e = x - p,   shift = mean(e),   variance = mean(e^2) - shift^2,   y = (e - shift) / sqrt(variance +
 * eps) The pivot is the mean of the row's first 64 features. Where |mean| >> deviation, e is exact by Sterbenz' lemma,
 * so nothing of the deviation is lost, as it is in mean(x^2) - mean(x)^2 or in x - mean with a rounded mean. The
 * subtraction cancels by a factor of 1 + (mean - p)^2 / variance, 1 + 1/64 for independent features and never more than
 *  1 + d / 64, which is also the growth of the error of a sum over 64 lanes. A third pass that centres the variance
 * costs a fifth of the time. */
struct LayerStatistics {
    Halide::Expr pivot;   // p
    Halide::Expr mean_e;  // the mean is p + mean_e
    Halide::Expr scale;   // 1/sqrt(variance + eps)
};

inline LayerStatistics layer_statistics(RowKernel &row, const Element &feature, const Halide::Expr &width,
                                        const Halide::Expr &eps) {
    using namespace Halide;
    const Expr per_feature = strict_float(1.0f / cast<float>(width));
    const Expr pivot = row.mean_of_some("pivot", width, 64, feature);
    const auto terms = [&](const Expr &x) {
        const Expr e = strict_float(x - pivot);
        return Values{e, e * e};
    };
    // Half as many lanes as where one sum is kept: the accumulators of both then fit AVX2's registers.
    const FuncRef moments = row.reduce("moments", width, 32, sums_of(2, terms), feature);
    const Expr mean_e = row.derived_scalar("mean_e", moments[0] * per_feature);
    const Expr mean_square = strict_float(moments[1] * per_feature);
    // Squares that overflow are an infinite variance, not the difference of two infinities.
    const Expr variance = select(is_finite(mean_square), max(mean_square - mean_e * mean_e, 0.0f), mean_square);
    const Expr deviation = sqrt(variance + eps);
    // A constant row with eps = 0 has no direction: it becomes the bias. A row with NaN or Inf becomes NaN.
    const Expr nan = reinterpret<float>(cast<uint32_t>(0x7fc00000));
    return {pivot, mean_e,
            row.scalar("scale", select(!is_finite(mean_e), nan, deviation == 0.0f, 0.0f, 1.0f / deviation))};
}

/** (x - mean) scale */
inline Element layer_normalized(RowKernel &row, const Element &x, const LayerStatistics &of) {
    const Fma fused = Fma::of_strict(row.tensors.target());
    const Halide::Expr shift = row.hoisted_scalar("shift", fused.minus(of.mean_e) * of.scale);
    return [x, fused, of, shift](const ElementAccess &at, const Halide::Expr &i) {
        return fused.fma(x(at, i) - of.pivot, of.scale, shift);
    };
}

/** y = (x - mean) scale weight + bias */
inline Element layer_norm(RowKernel &row, const Element &x, const LayerStatistics &of, const OptionalVector &weight,
                          const OptionalVector &bias) {
    const Fma fused = Fma::of_strict(row.tensors.target());
    const Element normalized = layer_normalized(row, x, of);
    return [fused, normalized, &weight, &bias](const ElementAccess &at, const Halide::Expr &i) {
        const Halide::Expr n = normalized(at, i);
        if (weight && bias) {
            return fused.fma(n, at(weight, i), at(bias, i));
        }
        return weight ? n * at(weight, i) : bias ? n + at(bias, i) : n;
    };
}

}  // namespace halyard

#endif
