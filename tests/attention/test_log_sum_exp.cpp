// The kernel that makes log_sum_exp of a row's maximum and sum: its logarithm over f32, and its special values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/kernel_call.h"
#include "support/invocation.h"
#include "support/test_scale.h"

namespace halyard {
namespace {

using tests::reduced, tests::row_isas;

constexpr double log_bound = 0.9;  // ULP

/** maximum + log(sum), by row. */
std::vector<float> log_sum_exp(halyard_isa isa, float maximum, const std::vector<float> &sums) {
    const std::size_t rows = (sums.size() + 15) / 16 * 16;
    std::vector<float> statistics(2 * rows, maximum), y(rows);
    std::copy(sums.begin(), sums.end(), statistics.begin() + static_cast<std::ptrdiff_t>(rows));
    Buffer<2, float> in, out;
    const auto count = static_cast<std::int64_t>(rows);
    in.set(statistics.data(), count, 2, count);
    out.set(y.data(), count, 1, 0);
    kernel_function(kernels::attention_log_sum_exp, DType::f32, isa)({in, out});
    y.resize(sums.size());
    return y;
}

double ulp_of(double value) {
    int exponent;
    std::frexp(value, &exponent);
    return std::ldexp(1.0, std::max(exponent - 24, -149));
}

TEST(LogSumExp, OfEverySum) {
    const std::uint32_t step = (reduced ? 4001 : 61), infinity = 0x7f800000u;
    double worst = 0;
    for (std::uint32_t first = 1; first < infinity; first += 65536 * step) {
        std::vector<float> sums;
        std::vector<double> exact;
        for (std::uint32_t bits = first; bits < infinity && sums.size() < 65536; bits += step) {
            float sum;
            std::memcpy(&sum, &bits, sizeof(sum));
            sums.push_back(sum);
            exact.push_back(std::log(static_cast<double>(sum)));
        }
        for (const halyard_isa isa : row_isas()) {
            const std::vector<float> got = log_sum_exp(isa, 0.0f, sums);
            for (std::size_t i = 0; i < sums.size(); i++) {
                const double error = std::fabs(static_cast<double>(got[i]) - exact[i]) / ulp_of(exact[i]);
                worst = std::max(worst, exact[i] == 0.0 && got[i] == 0.0f ? 0.0 : error);
            }
        }
    }
    RecordProperty("ulp", std::to_string(worst));
    EXPECT_LE(worst, log_bound);
}

TEST(LogSumExp, OfSpecialValues) {
    const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
    for (const halyard_isa isa : row_isas()) {
        const std::vector<float> got = log_sum_exp(isa, 3.0f, {0.0f, -0.0f, 1.0f, infinity, nan, -1.0f, -infinity});
        EXPECT_EQ(got[0], -infinity);
        EXPECT_EQ(got[1], -infinity);
        EXPECT_EQ(got[2], 3.0f);
        EXPECT_EQ(got[3], infinity);
        for (int i = 4; i < 7; i++) {
            EXPECT_TRUE(std::isnan(got[static_cast<std::size_t>(i)])) << i;
        }
        EXPECT_EQ(log_sum_exp(isa, std::numeric_limits<float>::lowest(), {0.0f})[0], -infinity);
        EXPECT_TRUE(std::isnan(log_sum_exp(isa, nan, {1.0f})[0]));
    }
}

TEST(LogSumExp, InstructionSetsAgree) {
    std::vector<float> sums;
    for (int i = 0; i < 100000; i++) {
        sums.push_back(1.0f + static_cast<float>(i) * 0.37f);
    }
    std::vector<float> first;
    for (const halyard_isa isa : row_isas()) {
        if (isa == HALYARD_ISA_SSE41) {
            continue;
        }
        const std::vector<float> got = log_sum_exp(isa, -17.25f, sums);
        first = first.empty() ? got : first;
        EXPECT_EQ(std::memcmp(first.data(), got.data(), got.size() * sizeof(float)), 0) << halyard_isa_name(isa);
    }
}

}  // namespace
}  // namespace halyard
