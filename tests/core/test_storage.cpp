// The tests' own tools: conversions of the storage types against known properties and the compiler, references against
// published values and identities, guard pages and canaries.
#include "support/invocation.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace halyard::tests {
namespace {

#if defined(__aarch64__)
using CompilersHalf = __fp16;      // GCC 12 has _Float16 in C++ on x86 only
#elif defined(__FLT16_MANT_DIG__)  // clang 14 has it on ARM only
using CompilersHalf = _Float16;
#endif

constexpr double infinity = std::numeric_limits<double>::infinity();

class SixteenBits : public testing::TestWithParam<Dtype> {};

TEST_P(SixteenBits, EveryValueSurvivesDecodingAndEncoding) {
    const Dtype type = GetParam();
    for (std::uint32_t bits = 0; bits < 1 << 16; bits++) {
        const double value = decode(type, bits);
        if (std::isnan(value)) {
            EXPECT_TRUE(std::isnan(decode(type, encode(type, value))));
        } else {
            ASSERT_EQ(encode(type, value), bits) << value;
        }
    }
}

TEST_P(SixteenBits, MidpointsGoToEvenAndTheirNeighboursToTheNearest) {
    const Dtype type = GetParam();
    // Positive finite values in increasing order; the one after the largest is infinity.
    for (std::uint32_t bits = 0; std::isfinite(decode(type, bits)); bits++) {
        const double low = decode(type, bits);
        const double gap = spacing(type, low);
        const double middle = low + gap / 2;
        const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
        ASSERT_EQ(encode(type, middle), even) << low;
        ASSERT_EQ(encode(type, -middle), even | 0x8000u) << low;
        ASSERT_EQ(encode(type, std::nextafter(middle, 0)), bits) << low;
        ASSERT_EQ(encode(type, std::nextafter(middle, infinity)), bits + 1) << low;
        if (std::isfinite(decode(type, bits + 1))) {
            ASSERT_EQ(decode(type, bits + 1) - low, gap);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, SixteenBits, testing::Values(Dtype::f16, Dtype::bf16),
                         [](const testing::TestParamInfo<Dtype> &info) { return name_of(info.param); });

TEST(Storage, LimitsAreThoseOfTheStandards) {
    EXPECT_EQ(max_finite(Dtype::f16), 65504.0);
    EXPECT_EQ(min_normal(Dtype::f16), 0x1p-14);
    EXPECT_EQ(min_denormal(Dtype::f16), 0x1p-24);
    EXPECT_EQ(max_finite(Dtype::bf16), 0x1.fep127);
    EXPECT_EQ(min_normal(Dtype::bf16), 0x1p-126);
    EXPECT_EQ(min_denormal(Dtype::bf16), 0x1p-133);
    EXPECT_EQ(max_finite(Dtype::f32), static_cast<double>(std::numeric_limits<float>::max()));
    EXPECT_EQ(min_denormal(Dtype::f32), static_cast<double>(std::numeric_limits<float>::denorm_min()));
}

TEST(Storage, F32AgreesWithTheCompiler) {
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 40009) {
        const float value = float_from_bits(static_cast<std::uint32_t>(bits));
        if (std::isnan(value)) {
            ASSERT_TRUE(std::isnan(decode(Dtype::f32, static_cast<std::uint32_t>(bits))));
            continue;
        }
        ASSERT_EQ(decode(Dtype::f32, static_cast<std::uint32_t>(bits)), static_cast<double>(value));
        // A double between two f32 numbers.
        const double between = value * (1 + 0x1.8p-25);
        ASSERT_EQ(encode(Dtype::f32, between), bits_of(static_cast<float>(between)));
    }
}

#ifdef __FLT16_MANT_DIG__
TEST(Storage, F16AgreesWithTheCompiler) {
    for (std::uint32_t bits = 0; bits < 1 << 16; bits++) {
        const auto narrow = static_cast<std::uint16_t>(bits);
        CompilersHalf value;
        std::memcpy(&value, &narrow, sizeof value);
        const auto wide = static_cast<double>(value);
        if (std::isnan(wide)) {
            EXPECT_TRUE(std::isnan(decode(Dtype::f16, bits)));
        } else {
            ASSERT_EQ(decode(Dtype::f16, bits), wide);
        }
    }
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 40009) {
        const float value = float_from_bits(static_cast<std::uint32_t>(bits));
        const auto rounded = static_cast<CompilersHalf>(value);
        std::uint16_t expected;
        std::memcpy(&expected, &rounded, sizeof expected);
        if (!std::isnan(value)) {
            ASSERT_EQ(encode(Dtype::f16, value), expected) << value;
        }
    }
}
#endif

// ---- References ------------------------------------------------------------------------------------------------

TEST(Reference, ActivationsHaveTheirPublishedValues) {
    // Standard normal distribution: Abramowitz and Stegun, tables 26.1 and 26.2.
    EXPECT_NEAR(reference::gelu(1), 0.841344746068543, 1e-15);
    EXPECT_NEAR(reference::gelu(2) / 2, 0.977249868051821, 1e-15);
    EXPECT_NEAR(reference::gelu(-3) / (-3 * 1.34989803163e-3), 1, 1e-11);
    EXPECT_NEAR(reference::gelu(-10) / (-10 * 7.61985302416e-24), 1, 1e-11);
    EXPECT_NEAR(reference::gelu_tanh(1), 0.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * 1.044715)), 1e-15);
    EXPECT_NEAR(reference::gelu_sigmoid(1), 1 / (1 + std::exp(-1.702)), 1e-15);
    EXPECT_NEAR(reference::silu(1), 0.731058578630005, 1e-15);
    EXPECT_NEAR(reference::silu(-100) / (-100 * std::exp(-100)), 1, 1e-15);
    EXPECT_NEAR(reference::sigmoid(-50) / std::exp(-50), 1, 1e-15);
    EXPECT_NEAR(reference::swish(2, 0.5), 2 * reference::sigmoid(1), 1e-15);
    EXPECT_EQ(reference::swish(3, 0), 1.5);
}

TEST(Reference, DerivativesAreTheSlopesOfTheFunctions) {
    for (const Operation &gradient : all_operations()) {
        if (gradient.gradient_of.empty() || gradient.operands.size() != 2 || gradient.label == "relu_derivative") {
            continue;
        }
        const auto value = [&](const Operation &function, double x) {
            return function
                .reference({{{x}}, {}}, Sizes::of_rows({1}), gradient.scalar_values().data(), Dtype::f32)[0][0][0]
                .value;
        };
        const Operation &function = operation(gradient.gradient_of);
        const double beta = gradient.scalars.empty() ? 1 : gradient.scalars[0].value;
        for (double x = -9; x < 9; x += 0.37) {
            // Central difference of fourth order: error about h^4 + 1e-16 / h.
            const double h = 1e-3;
            const auto f = [&](double offset) { return value(function, x + offset); };
            const double slope = (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h);
            const double scale = std::fmax(std::fabs(f(h)), 1) * std::fmax(1, std::pow(std::fabs(beta), 5));
            EXPECT_NEAR(value(gradient, x), slope, 1e-11 * scale) << gradient.label << " at " << x;
        }
    }
    EXPECT_EQ(reference::relu_derivative(0), 0);
    EXPECT_EQ(reference::relu_derivative(1e-30), 1);
    EXPECT_EQ(reference::relu_derivative(-1e-30), 0);
}

TEST(Reference, GradientsAreTheSlopesOfTheSumThatDyWeighs) {
    for (const Operation &gradient : all_operations()) {
        if (gradient.gradient_of.empty() || gradient.operands.size() == 2 || gradient.needs_features) {
            continue;
        }
        // The inputs of the function, then dy; its outputs are the gradients of the inputs.
        const Operation &function = operation(gradient.gradient_of);
        const Sizes sizes = Sizes::of_rows({1, 4});
        const std::size_t inputs = function.with_role(Role::input).size();
        const auto values_of = [&](std::size_t operand) {
            Row row;
            for (std::int64_t i = 0; i < gradient.operands[operand].shape(sizes).back(); i++) {
                // None near 0, where ReLU has a corner.
                const double size = 0.2 + 3 * uniform(71, static_cast<std::int64_t>(operand), i);
                row.push_back((static_cast<std::size_t>(i) + operand) % 3 == 0 ? -size : size);
            }
            return row;
        };
        std::vector<operations::Rows> operands;
        for (std::size_t operand = 0; operand <= inputs; operand++) {
            operands.push_back({values_of(operand)});
        }
        const Row dy = operands[inputs][0];
        const std::vector<double> scalars = gradient.scalar_values();
        const auto evaluate = [&](const Operation &operation, std::vector<operations::Rows> given) {
            given.resize(operation.operands.size());
            return operation.reference(given, sizes, scalars.data(), Dtype::f32);
        };
        const std::vector<Matrix> got = evaluate(gradient, operands);
        for (std::size_t input = 0; input < inputs; input++) {
            for (std::size_t i = 0; i < operands[input][0].size(); i++) {
                const auto sum = [&](double offset) {
                    std::vector<operations::Rows> moved(operands.begin(), operands.end() - 1);
                    moved[input][0][i] += offset;
                    const ExpectedRow y = evaluate(function, moved)[0][0];
                    double total = 0;
                    for (std::size_t k = 0; k < dy.size(); k++) {
                        total += dy[k] * y[k].value;
                    }
                    return total;
                };
                const double h = 1e-3;
                const double slope = (8 * (sum(h) - sum(-h)) - (sum(2 * h) - sum(-2 * h))) / (12 * h);
                EXPECT_NEAR(got[input][0][i].value, slope, 1e-9 * std::fmax(1, std::fabs(slope)))
                    << gradient.label << ", " << function.operands[input].name << "[" << i << "]";
            }
        }
    }
}

TEST(Reference, HasTheLimitsAtInfinity) {
    for (const Activation &activation : activations()) {
        const double high = activation.reference(infinity), low = activation.reference(-infinity);
        // So far out that every function with beta != 0 has reached its limit or grows linearly.
        const double near_high = activation.reference(1e30), near_low = activation.reference(-1e30);
        EXPECT_TRUE(high == near_high || (std::isinf(high) && near_high >= 0.5e30)) << activation.label;
        EXPECT_TRUE(low == near_low || (std::isinf(low) && near_low <= -0.5e30)) << activation.label;
        EXPECT_TRUE(std::isnan(activation.reference(std::nan("")))) << activation.label;
    }
}

TEST(Reference, AcceptsNoMoreThanItsError) {
    const Expected one = {1.0, 0x1p-23};
    EXPECT_TRUE(acceptable(Dtype::f32, one, 1.0 + 0x1p-23));
    EXPECT_FALSE(acceptable(Dtype::f32, one, 1.0 + 0x1p-22));
    EXPECT_FALSE(acceptable(Dtype::f32, one, std::nan("")));
    EXPECT_FALSE(acceptable(Dtype::f32, one, infinity));
    EXPECT_FALSE(acceptable(Dtype::f32, {std::nan(""), 0}, 1.0));
    EXPECT_FALSE(acceptable(Dtype::f32, {infinity, 0}, -infinity));
    // Exact results are the nearest number of the type, and only that.
    EXPECT_TRUE(acceptable(Dtype::f32, {1.0 + 0x1p-25, 0}, 1.0));
    EXPECT_FALSE(acceptable(Dtype::f32, {1.0 + 0x1p-25, 0}, 1.0 + 0x1p-23));
    EXPECT_TRUE(acceptable(Dtype::bf16, {1.0 + 0x1.1p-8, 0}, 1.0 + 0x1p-7));
    EXPECT_FALSE(acceptable(Dtype::bf16, {1.0 + 0x1.1p-8, 0}, 1.0));
    // A midpoint that f32 arithmetic may miss on either side may be rounded to either side.
    EXPECT_TRUE(acceptable(Dtype::bf16, {1.0 + 0x1p-8, 0x1p-20}, 1.0));
    EXPECT_TRUE(acceptable(Dtype::bf16, {1.0 + 0x1p-8, 0x1p-20}, 1.0 + 0x1p-7));
    EXPECT_TRUE(acceptable(Dtype::f16, {65520, 0}, infinity));
    EXPECT_TRUE(acceptable(Dtype::f32, {4e38, 1}, infinity));
    EXPECT_FALSE(acceptable(Dtype::f32, {3e38, 1e31}, infinity));
}

// ---- Guarded tensors ---------------------------------------------------------------------------------------------

TEST(GuardedTensorDeathTest, StopsAccessesPastTheirEnds) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const Tensor high(Dtype::f16, {{3, 5}, {}, Placement::ends_at_guard, 0, 0});
    const Tensor low(Dtype::f32, {{3, 5}, {}, Placement::starts_at_guard, 0, 0});
    const auto read = [](const void *address) { return *static_cast<const volatile char *>(address); };
    EXPECT_EQ(static_cast<unsigned char>(read(static_cast<char *>(high.at(2, 4)) + 1)), 0xff);
    EXPECT_DEATH(read(static_cast<char *>(high.at(2, 4)) + 2), "");
    EXPECT_EQ(static_cast<unsigned char>(read(low.at(0, 0))), 0xff);
    EXPECT_DEATH(read(static_cast<char *>(low.at(0, 0)) - 1), "");
}

TEST(GuardedTensor, NoticesWritesBetweenRows) {
    Tensor tensor(Dtype::f32, {{2, 3}, {4, 1}, Placement::ends_at_guard, 0, 0});
    tensor.fill([](std::int64_t row, std::int64_t i) { return static_cast<double>(10 * row + i); });
    EXPECT_TRUE(tensor.surroundings_intact());
    EXPECT_EQ(tensor.get(1, 2), 12.0);
    const float stray = 1;
    std::memcpy(static_cast<char *>(tensor.at(0, 2)) + sizeof stray, &stray, sizeof stray);
    EXPECT_FALSE(tensor.surroundings_intact());
}

}  // namespace
}  // namespace halyard::tests
