// The accuracy promise of the activations: a sweep through f32, every value of the 16-bit types, signs of zero.
// halyard-accuracy sweeps all f32 inputs.
#include "support/f32_sweep.h"
#include "support/invocation.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace halyard::tests {
namespace {

constexpr std::uint64_t all_f32 = std::uint64_t{1} << 32;

// Primes: every exponent and all low bits of the significand are met.
#ifdef HALYARD_TESTS_REDUCED
constexpr std::uint64_t sweep_step = 60013;
#else
constexpr std::uint64_t sweep_step = 1429;  // three million inputs
#endif

class EveryActivation : public testing::TestWithParam<const Activation *> {};

TEST_P(EveryActivation, StaysWithinItsBoundsInF32) {
    std::vector<std::unique_ptr<Context>> owned;
    std::vector<const halyard_context *> contexts;
    for (const halyard_isa isa : row_isas()) {
        owned.push_back(std::make_unique<Context>(isa));
        contexts.push_back(owned.back()->get());
    }
    for (std::size_t k = 0; k < contexts.size(); k++) {
        ASSERT_EQ(halyard_context_isa(contexts[k]), row_isas()[k]);
    }
    const std::vector<SweepResult> results = sweep(*GetParam(), contexts, 0, all_f32, sweep_step);
    for (std::size_t k = 0; k < contexts.size(); k++) {
        const SweepResult &result = results[k];
        const char *const isa = halyard_isa_name(row_isas()[k]);
        EXPECT_GT(result.inputs, all_f32 / sweep_step / 2);
        EXPECT_EQ(result.wrong, 0u) << "of " << result.inputs << " inputs with " << isa
                                    << "; the first is x = " << show(Dtype::f32, bits_of(result.first_wrong_x))
                                    << ", which gave " << show(Dtype::f32, bits_of(result.first_wrong_got))
                                    << " instead of " << GetParam()->reference(result.first_wrong_x);
        for (const Worst &worst : result.worst) {
            EXPECT_LE(worst.ulp, worst.bound.max_ulp)
                << "x in [" << worst.bound.from << ", " << worst.bound.to << "] with " << isa
                << ", worst at x = " << show(Dtype::f32, bits_of(worst.x)) << ": "
                << show(Dtype::f32, bits_of(worst.got)) << " instead of " << worst.expected;
        }
    }
}

// Where functions change their formula or saturate, inputs are close together in value but not in bits: sweep these too.
TEST_P(EveryActivation, StaysWithinItsBoundsNearZeroAndInTheTails) {
    const Activation &activation = *GetParam();
    const ErrorModel errors(activation.function);
    constexpr int count = 1 << 16;
    const Operation &operation = tests::operation(activation.label);
    for (const double reach : {1.0, 12.0, 110.0}) {
        for (const halyard_isa isa : row_isas()) {
            Invocation call(operation, Dtype::f32, {count});
            call.tensors[0]->fill([&](std::int64_t, std::int64_t i) { return reach * (2.0 * i / (count - 1) - 1); });
            const Context context(isa);
            ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
            EXPECT_TRUE(call.check(call.expected())) << "  with " << halyard_isa_name(isa);
        }
    }
}

TEST_P(EveryActivation, IsRightForEveryValueOfThe16BitTypes) {
    const Operation &operation = tests::operation(GetParam()->label);
    for (const Dtype type : {Dtype::f16, Dtype::bf16}) {
        std::vector<Matrix> expected;
        for (const halyard_isa isa : row_isas()) {
            Invocation call(operation, type, {1 << 16});
            for (std::int64_t i = 0; i < 1 << 16; i++) {
                call.tensors[0]->set_bits(0, i, static_cast<std::uint32_t>(i));
            }
            if (expected.empty()) {
                expected = call.expected();
            }
            const Context context(isa);
            ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
            EXPECT_TRUE(call.check(expected)) << "  with " << halyard_isa_name(isa);
        }
    }
}

std::vector<const Activation *> pointers_to_activations() {
    std::vector<const Activation *> all;
    for (const Activation &activation : activations()) {
        all.push_back(&activation);
    }
    return all;
}

INSTANTIATE_TEST_SUITE_P(All, EveryActivation, testing::ValuesIn(pointers_to_activations()),
                         [](const testing::TestParamInfo<const Activation *> &info) {
                             return test_name(info.param->label, Dtype::f32);
                         });

// From one end of the range of beta to the other, with beta x of every size.
TEST(SwishWithExtremeBeta, StaysWithinItsBounds) {
    for (const float beta : {-0.0f, 1e-28f, -1e-28f, 1e-20f, -3e-7f, 1e10f, 1e20f, -1e27f, 1e28f, -1e28f}) {
        for (Activation activation : activations()) {
            if (!activation.has_beta || activation.beta != 0) {
                continue;
            }
            activation.beta = beta;
            const bool slope = activation.function == "swish_derivative";
            activation.reference = [=](double x) {
                return slope ? reference::swish_derivative(x, beta) : reference::swish(x, beta);
            };
            // Everywhere, and where beta x is moderate.
            const std::uint32_t about_one = bits_of(std::min(1 / std::fabs(beta), 1e38f));
            const std::uint64_t sign = std::uint64_t{1} << 31, near = 8 << 23;
            std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges = {{0, all_f32}};
            for (const std::uint64_t first : {about_one - near, about_one - near + sign}) {
                ranges.emplace_back(first, first + 2 * near);
            }
            for (const halyard_isa isa : row_isas()) {
                const Context context(isa);
                for (const auto &[first, end] : ranges) {
                    const std::uint64_t step = end - first == all_f32 ? 60013 : 4099;
                    const SweepResult result = sweep(activation, {context.get()}, first, end, step)[0];
                    EXPECT_GT(result.inputs, 10000u);
                    EXPECT_EQ(result.wrong, 0u)
                        << activation.function << ", beta " << beta << " with " << halyard_isa_name(isa)
                        << "; the first is x = " << result.first_wrong_x << ", which gave " << result.first_wrong_got
                        << " instead of " << activation.reference(result.first_wrong_x);
                }
            }
        }
    }
}

TEST(SwishWithExtremeBeta, IsRightForEveryValueOfThe16BitTypes) {
    for (const char *label : {"swish.beta_0", "swish_derivative.beta_0"}) {
        for (const float beta : {1e-28f, -1e-28f, 1e28f, -1e28f}) {
            Operation operation = tests::operation(label);
            operation.scalars[0].value = beta;
            for (const Dtype type : {Dtype::f16, Dtype::bf16}) {
                Invocation call(operation, type, {1 << 16});
                for (std::int64_t i = 0; i < 1 << 16; i++) {
                    call.tensors[0]->set_bits(0, i, static_cast<std::uint32_t>(i));
                }
                const std::vector<Matrix> expected = call.expected();
                for (const halyard_isa isa : row_isas()) {
                    ASSERT_EQ(call.run(Context(isa).get()), HALYARD_OK) << halyard_last_error();
                    EXPECT_TRUE(call.check(expected)) << "beta " << beta << " with " << halyard_isa_name(isa);
                }
            }
        }
    }
}

TEST(SwishWithExtremeBeta, HasItsLimits) {
    const double infinity = std::numeric_limits<double>::infinity();
    for (const float beta : {1e-28f, -1e-28f, 1e28f, -1e28f}) {
        for (const Dtype type : all_dtypes) {
            for (const halyard_isa isa : row_isas()) {
                const Context context(isa);
                for (const char *label :
                     {"swish.beta_0", "swish_derivative.beta_0", "swiglu", "swiglu.gate_up", "swiglu.interleaved"}) {
                    const bool slope = std::string_view(label) == "swish_derivative.beta_0";
                    const bool interleaved = std::string_view(label) == "swiglu.interleaved";
                    const bool packed = interleaved || std::string_view(label) == "swiglu.gate_up";
                    Invocation call(operation(label), type, {3});
                    for (std::size_t i = 0; i + 1 < call.tensors.size(); i++) {
                        call.tensors[i]->fill([](std::int64_t, std::int64_t) { return 1.0; });
                    }
                    const double inputs[] = {std::copysign(infinity, beta), -std::copysign(infinity, beta),
                                             std::nan("")};
                    for (std::int64_t i = 0; i < 3; i++) {
                        call.tensors[0]->set(0, interleaved ? 2 * i : i, inputs[i]);
                    }
                    call.scalars[packed ? 1 : 0] = beta;
                    ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
                    const Tensor &y = *call.tensors.back();
                    EXPECT_EQ(y.get(0, 0), slope ? 1 : inputs[0]) << call.describe();
                    EXPECT_EQ(y.get(0, 1), 0) << call.describe() << " with beta " << beta;
                    EXPECT_TRUE(std::isnan(y.get(0, 2))) << call.describe();
                }
            }
        }
    }
}

// Functions that go through zero like x or x / 2 keep the sign of zero, and a negative tail that vanishes comes from
// below.
TEST(ActivationsAtZero, KeepItsSign) {
    for (const char *label : {"gelu", "gelu_tanh", "gelu_sigmoid", "silu", "swish.beta_-1.5", "tanh"}) {
        for (const Dtype type : all_dtypes) {
            for (const halyard_isa isa : row_isas()) {
                Invocation call(operation(label), type, {2});
                call.tensors[0]->set(0, 0, 0.0);
                call.tensors[0]->set(0, 1, -0.0);
                const Context context(isa);
                ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
                for (std::int64_t i = 0; i < 2; i++) {
                    const double y = call.tensors[1]->get(0, i);
                    EXPECT_TRUE(y == 0 && std::signbit(y) == (i == 1))
                        << label << " of " << (i == 0 ? "+0" : "-0") << " is " << y << " in " << name_of(type)
                        << " with " << halyard_isa_name(isa);
                }
            }
        }
    }
}

}  // namespace
}  // namespace halyard::tests
