// The kernel that reduces rows for cross entropy: log(1 + x) of its sums against long double, in all binades that sums of
// exponentials have, and its three numbers where logits are special.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "core/kernel_call.h"
#include "support/invocation.h"
#include "support/test_scale.h"

namespace halyard {
namespace {

using tests::reduced, tests::row_isas;

constexpr double log1p_bound = 1.5;  // ULP

struct Reduced {
    float maximum, rest, log1p_rest;
};

std::vector<Reduced> reduce(halyard_isa isa, const std::vector<float> &logits, std::int64_t width) {
    const auto rows = static_cast<std::int64_t>(logits.size()) / width;
    std::vector<Reduced> result(static_cast<std::size_t>(rows));
    Buffer<2, float> in, out;
    in.set(logits.data(), width, rows, width);
    out.set(&result[0].maximum, 3, rows, 3);
    kernel_function(kernels::cross_entropy_statistics, DType::f32, isa)({in, out});
    return result;
}

long double ulp_of(long double value) {
    int exponent;
    std::frexp(value, &exponent);
    return std::ldexp(1.0L, std::max(exponent - 24, -149));
}

/** The exponents of the sums that were seen. */
std::set<int> check_log1p(const std::vector<Reduced> &rows, double &worst) {
    std::set<int> binades;
    for (const Reduced &row : rows) {
        const long double exact = std::log1p(static_cast<long double>(row.rest));
        const long double error = std::fabs(static_cast<long double>(row.log1p_rest) - exact) / ulp_of(exact);
        worst = std::max(worst, row.rest == 0 ? static_cast<double>(row.log1p_rest) : static_cast<double>(error));
        binades.insert(std::ilogb(row.rest));
    }
    return binades;
}

TEST(CrossEntropyKernel, LogarithmOfOneAndASumInEveryBinade) {
    for (const halyard_isa isa : row_isas()) {
        double worst = 0;
        std::set<int> binades;
        // Below 1, one exponential is the sum; above, many are.
        const int steps = reduced ? 4001 : 400009;
        std::vector<float> pairs;
        for (int i = 0; i < steps; i++) {
            pairs.insert(pairs.end(), {2.0f, 2.0f - 103.9f * static_cast<float>(i) / static_cast<float>(steps)});
        }
        binades.merge(check_log1p(reduce(isa, pairs, 2), worst));
        for (int binade = 0; binade <= 17; binade++) {
            const std::int64_t width = (std::int64_t{1} << binade) + 1;
            const int count = binade > 12 || reduced ? 11 : 1001;
            std::vector<float> rows;
            for (int i = 0; i < count; i++) {
                rows.insert(rows.end(), static_cast<std::size_t>(width),
                            -0.7f * static_cast<float>(i) / static_cast<float>(count));
                rows.back() = 0;
            }
            binades.merge(check_log1p(reduce(isa, rows, width), worst));
        }
        EXPECT_LE(worst, log1p_bound) << halyard_isa_name(isa);
        EXPECT_GT(worst, 0.5);
        for (int binade = -149; binade <= 16; binade++) {
            EXPECT_EQ(binades.count(binade), 1U) << binade;
        }
    }
}

TEST(CrossEntropyKernel, OfSpecialLogits) {
    const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
    for (const halyard_isa isa : row_isas()) {
        for (const std::int64_t width : {1, 3, 64, 67, 200}) {
            const auto count = static_cast<std::size_t>(width);
            const auto with = [&](float others, float last) {
                std::vector<float> row(count, others);
                row.back() = last;
                return reduce(isa, row, width)[0];
            };
            EXPECT_TRUE(std::isnan(with(1, nan).log1p_rest));
            EXPECT_TRUE(std::isnan(with(nan, 1).log1p_rest) || width == 1);
            EXPECT_TRUE(std::isnan(with(1, infinity).rest));
            EXPECT_TRUE(std::isnan(with(-infinity, -infinity).rest));
            EXPECT_EQ(with(-infinity, 5).rest, 0);
            EXPECT_EQ(with(-infinity, 5).maximum, 5);
            EXPECT_EQ(with(7, 7).rest, static_cast<float>(width - 1));
        }
    }
}

}  // namespace
}  // namespace halyard
