// Experiment 2, the operations: norms as texts write them and as this library computes them, run on numbers that count.
//
// The library's sums go over virtual lanes (docs/numerics.md): feature i to lane i mod L, then the lanes by halves. The
// algorithms below follow it step by step, so that their results have its bits, which norm_operations.csv shows by the
// largest difference.
#include "norm_operations.h"

#include "csv.h"
#include "normal.h"
#include "operation_counts.h"

#include <halyard/halyard.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

namespace experiments {
namespace {

constexpr float eps = 1e-5f;

/** The tensors of a norm of one row. */
struct Operands {
    CountedRow x, weight, bias, y;
};

using Lanes = std::vector<Counted>;

/** The sum of the lanes, by halves. */
Counted sum_of(Lanes lanes) {
    for (std::size_t half = lanes.size() / 2; half >= 1; half /= 2) {
        for (std::size_t i = 0; i < half; i++) {
            lanes[i] = lanes[i] + lanes[i + half];
        }
    }
    return lanes[0];
}

// ---- as texts write them ----

/** Three passes: mean, variance, result. */
void textbook_layer_norm(Operands &o) {
    const std::size_t d = o.x.size();
    const Counted width = o.x.constant(static_cast<double>(d));
    Counted sum = o.x.constant(0), squares = sum;
    for (std::size_t i = 0; i < d; i++) {
        sum = sum + o.x.load(i);
    }
    const Counted mean = sum / width;
    for (std::size_t i = 0; i < d; i++) {
        const Counted centred = o.x.load(i) - mean;
        squares = squares + centred * centred;
    }
    const Counted scale = o.x.constant(1) / sqrt(squares / width + o.x.constant(eps));
    for (std::size_t i = 0; i < d; i++) {
        o.y.store(i, o.weight.load(i) * ((o.x.load(i) - mean) * scale) + o.bias.load(i));
    }
}

/** Two passes: mean square, result. */
void textbook_rms_norm(Operands &o) {
    const std::size_t d = o.x.size();
    Counted squares = o.x.constant(0);
    for (std::size_t i = 0; i < d; i++) {
        const Counted feature = o.x.load(i);
        squares = squares + feature * feature;
    }
    const Counted mean_square = squares / o.x.constant(static_cast<double>(d));
    const Counted scale = o.x.constant(1) / sqrt(mean_square + o.x.constant(eps));
    for (std::size_t i = 0; i < d; i++) {
        o.y.store(i, o.weight.load(i) * (o.x.load(i) * scale));
    }
}

// ---- as the library computes them ----

/** Two passes: both moments of x - pivot, the pivot being the mean of the first 64 features; result. */
void library_layer_norm(Operands &o) {
    const std::size_t d = o.x.size(), pivot_features = std::min<std::size_t>(d, 64);
    const Counted zero = o.x.constant(0), one = o.x.constant(1);
    const Counted per_feature = one / o.x.constant(static_cast<double>(d));

    Lanes pivot_lanes(64, zero);
    for (std::size_t i = 0; i < pivot_features; i++) {
        pivot_lanes[i] = pivot_lanes[i] + o.x.load(i);
    }
    const Counted pivot = sum_of(pivot_lanes) / o.x.constant(static_cast<double>(pivot_features));

    Lanes sums(32, zero), squares(32, zero);
    for (std::size_t i = 0; i < d; i++) {
        const Counted e = o.x.load(i) - pivot;
        sums[i % 32] = sums[i % 32] + e;
        squares[i % 32] = fma(e, e, squares[i % 32]);
    }
    const Counted mean_e = sum_of(sums) * per_feature;
    const Counted variance = max(sum_of(squares) * per_feature - mean_e * mean_e, zero);
    const Counted scale = one / sqrt(variance + o.x.constant(eps));
    const Counted shift = -mean_e * scale;
    for (std::size_t i = 0; i < d; i++) {
        o.y.store(i, fma(fma(o.x.load(i) - pivot, scale, shift), o.weight.load(i), o.bias.load(i)));
    }
}

/** Two passes: mean square of the first `moment_features`, result. */
void library_rms_norm(Operands &o, std::size_t moment_features) {
    const std::size_t d = o.x.size();
    const Counted zero = o.x.constant(0), one = o.x.constant(1);
    const Counted per_feature = one / o.x.constant(static_cast<double>(moment_features));
    Lanes squares(64, zero);
    for (std::size_t i = 0; i < moment_features; i++) {
        const Counted feature = o.x.load(i);
        squares[i % 64] = fma(feature, feature, squares[i % 64]);
    }
    const Counted scale = one / sqrt(sum_of(squares) * per_feature + o.x.constant(eps));
    const Counted offset = zero;  // 1 for weights that are stored as their difference from one
    for (std::size_t i = 0; i < d; i++) {
        o.y.store(i, o.x.load(i) * scale * (o.weight.load(i) + offset));
    }
}

float largest_difference(const std::vector<float> &a, const std::vector<float> &b) {
    float largest = 0;
    for (std::size_t i = 0; i < a.size(); i++) {
        largest = std::max(largest, std::fabs(a[i] - b[i]));
    }
    return largest;
}

}  // namespace

void write_norm_operations(const std::filesystem::path &directory, std::int64_t d, float partial) {
    Normal normal(1);
    const std::vector<float> x = normal.values(d, 1), weight = normal.values(d, 1), bias = normal.values(d, 1);
    std::vector<float> layer(x.size()), rms(x.size()), partial_rms(x.size());
    halyard::layer_norm(x, weight, bias, eps, layer);
    halyard::rms_norm(x, weight, eps, rms);
    halyard::partial_rms_norm(x, weight, eps, 0, partial, partial_rms);
    const auto partial_features =
        static_cast<std::size_t>(std::ceil(static_cast<double>(partial) * static_cast<double>(d)));

    Csv csv(directory / "norm_operations.csv", {"algorithm", "d", "additions", "multiplications", "fused", "divisions",
                                                "roots", "flops", "loads", "stores", "largest_difference"});
    const auto line = [&](const char *name, const auto &algorithm, const std::vector<float> &result) {
        Counts counts;
        Operands operands{{x, counts}, {weight, counts}, {bias, counts}, {std::vector<float>(x.size()), counts}};
        algorithm(operands);
        csv.line(name, d, counts.additions, counts.multiplications, counts.fused, counts.divisions, counts.roots,
                 counts.flops(), counts.loads, counts.stores, largest_difference(operands.y.numbers(), result));
    };
    line("LayerNorm, textbook", textbook_layer_norm, layer);
    line("RMSNorm, textbook", textbook_rms_norm, rms);
    line("LayerNorm", library_layer_norm, layer);
    line(
        "RMSNorm", [&](Operands &o) { library_rms_norm(o, o.x.size()); }, rms);
    line(
        "pRMSNorm", [&](Operands &o) { library_rms_norm(o, partial_features); }, partial_rms);
    csv.close();
}

}  // namespace experiments
