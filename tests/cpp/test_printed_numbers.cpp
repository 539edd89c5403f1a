// Numbers and statements that texts on norms print, computed by the library.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "halyard/halyard.hpp"

namespace halyard::tests {
namespace {

using Values = std::vector<float>;

Values normal(std::size_t count, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> distribution;
    Values result(count);
    for (float &value : result) {
        value = distribution(generator);
    }
    return result;
}

Values layer_normed(const Values &x, float eps = 0, const Context &context = Context()) {
    Values y(x.size());
    layer_norm(x, {}, {}, eps, y, context);
    return y;
}

Values rms_normed(const Values &x, float eps = 0) {
    Values y(x.size());
    rms_norm(x, {}, eps, y);
    return y;
}

double mean(const Values &x) {
    return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

double mean_square(const Values &x) {
    return std::inner_product(x.begin(), x.end(), x.begin(), 0.0, std::plus<>(),
                              [](double a, double b) { return a * b; }) /
           static_cast<double>(x.size());
}

/** The sum of squared differences from the mean over n - `less`. */
double variance(const Values &x, double less) {
    const auto n = static_cast<double>(x.size());
    return (mean_square(x) - mean(x) * mean(x)) * n / (n - less);
}

/** Equal but for rounding, which differs between two ways to the same numbers. */
void expect_close(const Values &a, const Values &b, double tolerance) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); i++) {
        EXPECT_NEAR(a[i], b[i], tolerance) << i;
    }
}

// ---- The chapter on GPT-2: torch.manual_seed(123), randn(2, 5), Linear(5, 6), ReLU, then LayerNorm ----

const Values chapter_x = {-0.111467116f, 0.120362945f,  -0.369634509f, -0.240417972f, -1.19692433f,
                          0.20926936f,   -0.972355008f, -0.755045474f, 0.323902756f,  -0.108522631f};
const Values chapter_weight = {0.316244215f,   0.0833185762f,  0.122290887f,   0.431676805f,  -0.201697528f,
                               0.14165546f,    -0.198972538f,  0.319601059f,   0.357170016f,  -0.412318528f,
                               0.381761998f,   0.213550925f,   0.194880947f,   0.184106588f,  0.371768236f,
                               -0.0590498783f, -0.378207862f,  -0.128327459f,  -0.314961195f, 0.0295638051f,
                               -0.0834981278f, -0.23987864f,   -0.0406612866f, 0.423691839f,  -0.0352741592f,
                               0.0141990688f,  -0.0697476789f, 0.070305109f,   0.398472965f,  0.273467928f};
const Values chapter_bias = {0.15874362f, 0.0971842334f, 0.105449781f, 0.172773466f, -0.0577904917f, -0.415644228f};

constexpr double printed = 0.5e-4 + 1e-6;  // numbers have four places

Values chapter_layer(const Context &context) {
    const Weights weights = Weights::pack({chapter_weight, {6, 5}});
    LinearOptions options;
    options.bias = chapter_bias;
    options.activation = Activation::relu;
    Values y(12);
    linear({chapter_x, {2, 5}}, weights, options, {y, {2, 6}}, context);
    return y;
}

TEST(ChapterOnGpt2, LinearReluMeansVariancesAndNormalizedRows) {
    const Values layer = {0.2260f, 0.3470f, 0, 0.2216f, 0, 0, 0.2133f, 0.2394f, 0, 0.5198f, 0.3297f, 0};
    const Values normalized[] = {{0.6159f, 1.4126f, -0.8719f, 0.5872f, -0.8719f, -0.8719f},
                                 {-0.0189f, 0.1121f, -1.0876f, 1.5173f, 0.5647f, -1.0876f}};
    const double means[] = {0.1324, 0.2170}, variances[] = {0.0231, 0.0398};
    for (int i = 0; i < halyard_isa_count(); i++) {
        const auto isa = static_cast<Isa>(halyard_isa_at(i));
        if (!supported(isa)) {
            continue;
        }
        Context context;
        context.set_max_isa(isa);
        const Values y = chapter_layer(context);
        expect_close(y, layer, printed);
        for (std::size_t row = 0; row < 2; row++) {
            const auto first = y.begin() + 6 * static_cast<std::ptrdiff_t>(row);
            const Values one(first, first + 6);
            EXPECT_NEAR(mean(one), means[row], printed);
            EXPECT_NEAR(variance(one, 1), variances[row], printed);
            // The chapter divides by n - 1 here, and by n in its class, as LayerNorm does everywhere.
            Values by_less = layer_normed(one, 0, context);
            EXPECT_NEAR(mean(by_less), 0, 1e-6);
            EXPECT_NEAR(variance(by_less, 0), 1, 1e-6);
            for (float &value : by_less) {
                value *= std::sqrt(5.0f / 6.0f);
            }
            expect_close(by_less, normalized[row], printed);
        }
    }
}

// "n or n - 1: negligible where d is large": the deviations differ by sqrt(n / (n - 1)), that is by about 1 / (2 n).
TEST(ChapterOnGpt2, DividingByNOrLessDiffersByHalfOfOneNth) {
    for (const std::size_t n : {6, 64, 768, 4096}) {
        const Values y = layer_normed(normal(n, 1));
        const double ratio = std::sqrt(variance(y, 1) / variance(y, 0));
        EXPECT_NEAR(std::sqrt(variance(y, 1)), ratio, 1e-6) << n;
        EXPECT_NEAR((ratio - 1) * 2 * static_cast<double>(n), 1, 1.0 / static_cast<double>(n)) << n;
    }
}

// ---- The notebook's example, d = 8 ----

TEST(LayerNormBesideRmsNorm, RowsOfEight) {
    const Values x = normal(8, 5);
    const Values by_layer = layer_normed(x, 1e-5f), by_rms = rms_normed(x, 1e-5f);
    EXPECT_NEAR(mean(by_layer), 0, 1e-6);
    EXPECT_NEAR(std::sqrt(variance(by_layer, 0)), 1, 1e-4);
    EXPECT_NEAR(std::sqrt(mean_square(by_rms)), 1, 1e-4);
    EXPECT_GT(std::fabs(mean(by_rms)), 0.05);
}

// ---- Invariances ----

TEST(LayerNormBesideRmsNorm, OneIsTheOtherOfWhatIsLeftWithoutTheMean) {
    for (const std::size_t d : {8, 67, 1024}) {
        Values x = normal(d, 2);
        for (float &value : x) {
            value += 0.5f;
        }
        const auto shift = static_cast<float>(mean(x));
        Values centred = x;
        for (float &value : centred) {
            value -= shift;
        }
        expect_close(rms_normed(centred), layer_normed(x), 2e-6);
        // It is the projection onto the plane perpendicular to (1, ..., 1).
        EXPECT_NEAR(mean(layer_normed(x)), 0, 1e-6);
    }
}

/** A layer's outputs with its weights scaled, and one vector added to the weights of every output. */
Values outputs(const Values &x, const Values &weight, float scale, const Values &shift) {
    const std::size_t in = x.size(), out = weight.size() / in;
    Values changed(weight.size());
    for (std::size_t i = 0; i < weight.size(); i++) {
        changed[i] = weight[i] * scale + (shift.empty() ? 0 : shift[i % in]);
    }
    const Weights packed = Weights::pack({changed, {out, in}});
    Values y(out);
    linear({x, {std::size_t{1}, in}}, packed, {y, {std::size_t{1}, out}});
    return y;
}

TEST(LayerNormBesideRmsNorm, WhatChangesTheWeightsBeforeThemAndIsSeen) {
    constexpr std::size_t in = 24, out = 48;
    const Values x = normal(in, 3), weight = normal(in * out, 4), shift = normal(in, 6);
    const Values plain = outputs(x, weight, 1, {}), scaled = outputs(x, weight, 3, {}),
                 shifted = outputs(x, weight, 1, shift);
    // Scaled weights change neither. Weights that are all shifted alike change RMSNorm alone.
    expect_close(layer_normed(scaled), layer_normed(plain), 4e-6);
    expect_close(rms_normed(scaled), rms_normed(plain), 4e-6);
    expect_close(layer_normed(shifted), layer_normed(plain), 2e-5);
    const Values before = rms_normed(plain), after = rms_normed(shifted);
    double largest = 0;
    for (std::size_t i = 0; i < out; i++) {
        largest = std::max(largest, std::fabs(static_cast<double>(before[i]) - after[i]));
    }
    EXPECT_GT(largest, 0.1);
}

// Without a gain every row has the length sqrt(d): only its direction is left.
TEST(LayerNormBesideRmsNorm, WithoutGainTheDirectionIsLeft) {
    const Values x = normal(64, 7), y = rms_normed(x);
    EXPECT_NEAR(std::sqrt(mean_square(y) * 64), 8, 1e-5);
    for (std::size_t i = 0; i < x.size(); i++) {
        EXPECT_NEAR(y[i] / y[0], x[i] / x[0], 1e-5 * std::fabs(x[i] / x[0]) + 1e-6);
    }
}

}  // namespace
}  // namespace halyard::tests
