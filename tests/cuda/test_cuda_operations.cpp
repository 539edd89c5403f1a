// Every operation on tensors of a CUDA device, by the library's way of launching kernels and the stand-in driver:
// against the float64 references, whatever the width and the memory layout; with the bits that the same row has
// elsewhere.
#include "support/invocation.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "stand_ins.h"
#include "support/device_hooks.h"
#include "support/linear.h"

namespace halyard::tests {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

void to_device(Invocation &call) {
    for (DLTensor *argument : call.arguments) {
        argument->device = {kDLCUDA, 0};
    }
}

/** Starts at multiples of 16 bytes from the front page: rows are read in words where their width allows. */
Form aligned(const Operand &, const Shape &shape) {
    return {shape, {}, Placement::starts_at_guard, 0, 0};
}

class EveryOperation : public testing::TestWithParam<OperationCase> {
protected:
    const Operation &operation = *GetParam().operation;
    const Dtype type = GetParam().type;
    const Context context;

    std::unique_ptr<Invocation> make(const Shape &shape, const Invocation::Arrange &arrange, std::uint64_t seed) const {
        auto call = std::make_unique<Invocation>(operation, type, shape, arrange);
        call->fill(seed);
        to_device(*call);
        return call;
    }

    void expect_right(const Shape &shape, const Invocation::Arrange &arrange) const {
        const auto call = make(shape, arrange, 3 * static_cast<std::uint64_t>(shape.back()));
        ASSERT_EQ(call->run(context.get()), HALYARD_OK) << halyard_last_error() << "; " << call->describe();
        ASSERT_TRUE(call->check(call->expected()));
    }

    bool elementwise() const { return !operation.needs_features; }

    /** So wide that four warps share a row. */
    std::int64_t wide() const { return type == Dtype::f32 ? 2048 : 4096; }
};

// The shapes below ask for few kinds of blocks: four rows of one warp, one row of one warp, one row of four. OpenCL
// compiles a kernel for each anew, which is what takes the time here.

TEST_P(EveryOperation, IsRightForEveryWidth) {
    // In words and, where the width is odd, element by element.
    for (const std::int64_t width : {1, 3, 8, 33, 64, 130, 500}) {
        ASSERT_NO_FATAL_FAILURE(expect_right({4, width}, aligned));
    }
    ASSERT_NO_FATAL_FAILURE(expect_right({7, 40}, aligned));
    ASSERT_NO_FATAL_FAILURE(expect_right({1, 33}, Invocation::compact));
    ASSERT_NO_FATAL_FAILURE(expect_right({2, wide()}, aligned));
    ASSERT_NO_FATAL_FAILURE(expect_right({2, wide() + 1}, Invocation::compact));
}

TEST_P(EveryOperation, IsRightForEveryMemoryLayout) {
    const auto padded = [](std::int64_t input_gap, std::int64_t output_gap) {
        return [=](const Operand &operand, const Shape &shape) {
            const std::int64_t gap = operand.role == Role::input    ? input_gap
                                     : operand.role == Role::output ? output_gap
                                                                    : 0;
            return Form{shape, gap > 0 ? padded_strides(shape, gap) : Shape{}, Placement::starts_at_guard, 0, 0};
        };
    };
    const auto misaligned = [](const Operand &operand, const Shape &shape) {
        return Form{shape, {}, Placement::starts_at_guard, operand.role == Role::output ? 1 : 3, 0};
    };
    const auto offset = [](const Operand &, const Shape &shape) {
        return Form{shape, {}, Placement::ends_at_guard, 0, 12};
    };
    const auto broadcast = [](const Operand &operand, const Shape &shape) {
        Form form{shape, {}, Placement::starts_at_guard, 0, 0};
        if (operand.role == Role::input) {
            form.strides = compact_strides(shape);
            form.strides[0] = 0;
        }
        return form;
    };
    for (const std::int64_t width : {64, 67}) {
        ASSERT_NO_FATAL_FAILURE(expect_right({4, width}, padded(8, 16)));
        ASSERT_NO_FATAL_FAILURE(expect_right({4, width}, padded(3, 5)));
        ASSERT_NO_FATAL_FAILURE(expect_right({4, width}, misaligned));
        ASSERT_NO_FATAL_FAILURE(expect_right({4, width}, offset));
        ASSERT_NO_FATAL_FAILURE(expect_right({2, 4, width}, broadcast));
        ASSERT_NO_FATAL_FAILURE(expect_right({2, 1, 4, width}, padded(8, 8)));
    }
}

// A row's result depends on the row alone: not on alignment, pitch, or how many rows there are.
TEST_P(EveryOperation, GivesTheSameBitsWhateverTheLayout) {
    const auto misaligned = [](const Operand &, const Shape &shape) {
        return Form{shape, padded_strides(shape, 1), Placement::starts_at_guard, 1, 0};
    };
    for (const std::int64_t width : {std::int64_t{64}, wide()}) {
        const Shape shape = {4, width};
        const auto together = make(shape, aligned, 5), apart = make(shape, misaligned, 5);
        ASSERT_EQ(together->run(context.get()), HALYARD_OK) << halyard_last_error();
        ASSERT_EQ(apart->run(context.get()), HALYARD_OK) << halyard_last_error();
        ASSERT_TRUE(same_bits(type, together->output_bits(), apart->output_bits())) << together->describe();
        // One row by itself.
        Invocation alone(operation, type, {1, width}, aligned);
        for (std::size_t i = 0; i < alone.tensors.size(); i++) {
            for (std::int64_t k = 0; k < alone.tensors[i]->width(); k++) {
                const bool parameter = operation.operands[i].role == Role::parameter;
                alone.tensors[i]->set_bits(0, k, together->tensors[i]->bits(parameter ? 0 : 2, k));
            }
        }
        alone.clear_outputs();
        to_device(alone);
        ASSERT_EQ(alone.run(context.get()), HALYARD_OK) << halyard_last_error();
        for (const std::size_t output : operation.with_role(Role::output)) {
            for (std::int64_t k = 0; k < width; k++) {
                ASSERT_EQ(alone.tensors[output]->bits(0, k), together->tensors[output]->bits(2, k))
                    << "feature " << k << " of a row of " << width << "; " << together->describe();
            }
        }
    }
}

TEST_P(EveryOperation, InPlaceGivesTheSameBits) {
    for (const Shape &shape : {Shape{4, 64}, Shape{3, 67}, Shape{2, wide() + 6}}) {
        for (const std::vector<Alias> &aliases : operation.in_place) {
            const auto apart = make(shape, aligned, 7), in_place = make(shape, aligned, 7);
            in_place->alias(aliases);
            ASSERT_EQ(apart->run(context.get()), HALYARD_OK) << halyard_last_error();
            ASSERT_EQ(in_place->run(context.get()), HALYARD_OK) << halyard_last_error() << "; " << apart->describe();
            ASSERT_TRUE(in_place->surroundings_intact());
            for (const std::size_t output : operation.with_role(Role::output)) {
                const Alias *alias = nullptr;
                for (const Alias &candidate : aliases) {
                    alias = candidate.output == output ? &candidate : alias;
                }
                const Tensor &expected = *apart->tensors[output];
                const Tensor &got = *in_place->tensors[alias != nullptr ? alias->input : output];
                const std::int64_t first = alias != nullptr ? alias->half * expected.width() : 0;
                for (std::int64_t row = 0; row < expected.rows(); row++) {
                    for (std::int64_t i = 0; i < expected.width(); i++) {
                        ASSERT_EQ(got.bits(row, first + i), expected.bits(row, i))
                            << "row " << row << ", " << i << "; " << apart->describe();
                    }
                }
            }
        }
    }
}

// Zeros, denormals, the largest numbers, infinities and NaN, each in rows of its own among ordinary ones.
TEST_P(EveryOperation, IsRightForSpecialValues) {
    const double specials[] = {0.0,      -0.0,      min_denormal(type), -min_normal(type), max_finite(type) / 4,
                               infinity, -infinity, not_a_number};
    constexpr std::int64_t count = sizeof specials / sizeof specials[0];
    for (const std::int64_t width : {64, 35}) {
        const auto call = make({2 * count, width}, aligned, 9);
        for (const std::size_t input : operation.with_role(Role::input)) {
            Tensor &tensor = *call->tensors[input];
            for (std::int64_t row = 0; row < count; row++) {
                for (std::int64_t i = 0; i < tensor.width(); i++) {
                    if (elementwise() || row < 2 || i % 7 == 0) {
                        tensor.set(2 * row, i, specials[(elementwise() && input % 2 == 1) ? (row + i) % count : row]);
                    }
                }
            }
        }
        ASSERT_EQ(call->run(context.get()), HALYARD_OK) << halyard_last_error();
        ASSERT_TRUE(call->check(call->expected()));
    }
}

TEST_P(EveryOperation, DoesNothingWithoutElements) {
    const auto call = make({0, 64}, aligned, 1);
    EXPECT_EQ(call->run(context.get()), HALYARD_OK) << halyard_last_error();
}

INSTANTIATE_TEST_SUITE_P(Cuda, EveryOperation, testing::ValuesIn(operation_cases([](const Operation &operation) {
                             return !operation.processors_alone;
                         })),
                         name_of_case);

class EveryActivation : public testing::TestWithParam<OperationCase> {};

// Elementwise kernels perform the same roundings in the same order on every target.
TEST_P(EveryActivation, HasTheBitsOfTheProcessor) {
    const Operation &operation = *GetParam().operation;
    const Dtype type = GetParam().type;
    if (halyard_isa_supported(HALYARD_ISA_AVX2) == 0) {
        GTEST_SKIP() << "this processor has no fused multiply-add";
    }
    const Context context;
    const std::int64_t width = 65536;
    Invocation there(operation, type, {1, width}, aligned), here(operation, type, {1, width}, aligned);
    for (const std::size_t input : operation.with_role(Role::input)) {
        Tensor &tensor = *here.tensors[input];
        for (std::int64_t i = 0; i < tensor.width(); i++) {
            // All values of the 16-bit types; in f32 as many, of all magnitudes.
            const auto bits = static_cast<std::uint32_t>(i % width + 8191 * static_cast<std::int64_t>(input));
            tensor.set_bits(0, i, type == Dtype::f32 ? bits * 65537u : bits & 0xffffu);
        }
    }
    there.copy_inputs_from(here);
    to_device(there);
    ASSERT_EQ(here.run(context.get()), HALYARD_OK) << halyard_last_error();
    ASSERT_EQ(there.run(context.get()), HALYARD_OK) << halyard_last_error();
    ASSERT_TRUE(same_bits(type, here.output_bits(), there.output_bits())) << here.describe();
}

INSTANTIATE_TEST_SUITE_P(Cuda, EveryActivation, testing::ValuesIn(operation_cases([](const Operation &operation) {
                             return !operation.needs_features && !operation.processors_alone;
                         })),
                         name_of_case);

class OfProcessorsAlone : public testing::TestWithParam<OperationCase> {};

TEST_P(OfProcessorsAlone, RefusesADevice) {
    Invocation call(*GetParam().operation, GetParam().type, {3, 8});
    to_device(call);
    EXPECT_EQ(call.run(nullptr), HALYARD_UNSUPPORTED);
    EXPECT_NE(std::string(halyard_last_error()).find("must be on the CPU"), std::string::npos) << halyard_last_error();
}

INSTANTIATE_TEST_SUITE_P(Cuda, OfProcessorsAlone, testing::ValuesIn(operation_cases([](const Operation &operation) {
                             return operation.processors_alone;
                         })),
                         name_of_case);

TEST(Rows, OfAMeanFarFromZeroKeepTheirDeviation) {
    const Operation &norm = operation("layer_norm");
    const Context context;
    for (const double mean : {1e4, -3e5}) {
        Invocation call(norm, Dtype::f32, {2, 4096}, aligned);
        call.tensors[0]->fill([&](std::int64_t row, std::int64_t i) { return mean + bell(11, row, i); });
        to_device(call);
        ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
        ASSERT_TRUE(call.check(call.expected()));
    }
}

TEST(Rows, AreRightAtTheGreatestWidths) {
    const Context context;
    for (const char *label : {"rms_norm", "softmax"}) {
        for (const std::int64_t width : {65536, 262144}) {
            Invocation call(operation(label), Dtype::bf16, {2, width}, aligned);
            call.fill(13);
            to_device(call);
            ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
            ASSERT_TRUE(call.check(call.expected()));
        }
    }
}

// ---- scales of norms ----

class CudaNormScales : public testing::TestWithParam<Dtype> {};

TEST_P(CudaNormScales, AreRight) {
    const Dtype type = GetParam();
    for (const std::int64_t width : {1, 7, 64, 500, 4104}) {
        for (const std::int64_t gap : {0, 3}) {
            const Form memory = {{2, 3, width},
                                 gap > 0 ? padded_strides({2, 3, width}, gap) : Shape(),
                                 Placement::starts_at_guard,
                                 0,
                                 0};
            const Form vector = {{2, 3}, gap > 0 ? Shape{5, 1} : Shape(), Placement::ends_at_guard, 0, 0};
            Tensor x(type, memory), mean(Dtype::f32, vector), scale(Dtype::f32, vector), rms(Dtype::f32, vector);
            x.fill([&](std::int64_t row, std::int64_t i) { return row == 4 ? 0.0 : 3.0 + bell(11, row, i); });
            to_device(x, mean, scale, rms);
            const Context context;
            ASSERT_EQ(finished(halyard_rms_norm_scale(context.get(), &x.view, 1e-6f, 0, &rms.view)), HALYARD_OK)
                << halyard_last_error();
            ASSERT_EQ(finished(halyard_layer_norm_scale(context.get(), &x.view, 1e-5f, &mean.view, &scale.view)),
                      HALYARD_OK)
                << halyard_last_error();
            NormParameters parameters;
            parameters.eps = static_cast<double>(1e-6f);
            for (std::int64_t row = 0; row < 6; row++) {
                const Row values = x.row_values(row);
                const Expected expected_rms = rms_scale(values, parameters);
                const Moments expected = layer_moments(values, static_cast<double>(1e-5f));
                ASSERT_TRUE(acceptable(Dtype::f32, expected_rms, rms.get(row / 3, row % 3)))
                    << width << ", row " << row;
                ASSERT_TRUE(acceptable(Dtype::f32, expected.mean, mean.get(row / 3, row % 3)))
                    << width << ", row " << row;
                if (width > 1) {
                    ASSERT_TRUE(acceptable(Dtype::f32, expected.scale, scale.get(row / 3, row % 3)))
                        << width << ", row " << row;
                }
            }
            ASSERT_TRUE(rms.surroundings_intact() && mean.surroundings_intact() && scale.surroundings_intact());
        }
    }
}

// A norm that is applied later has the bits of one that is not.
TEST_P(CudaNormScales, AreTheNormsOwn) {
    const Dtype type = GetParam();
    Tensor x(type, compact_form({5, 256})), y(type, compact_form({5, 256})), scale(Dtype::f32, compact_form({5}));
    x.fill([](std::int64_t row, std::int64_t i) { return bell(13, row, i); });
    to_device(x, y, scale);
    ASSERT_EQ(finished(halyard_rms_norm_scale(nullptr, &x.view, 1e-6f, 0, &scale.view)), HALYARD_OK)
        << halyard_last_error();
    ASSERT_EQ(finished(halyard_rms_norm(nullptr, &x.view, nullptr, 1e-6f, 0, &y.view)), HALYARD_OK)
        << halyard_last_error();
    for (std::int64_t row = 0; row < 5; row++) {
        for (std::int64_t i = 0; i < 256; i++) {
            const float product = static_cast<float>(x.get(row, i)) * static_cast<float>(scale.get(0, row));
            ASSERT_EQ(y.bits(row, i), encode(type, static_cast<double>(product)));
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaNormScales, testing::ValuesIn(all_dtypes),
                         [](const testing::TestParamInfo<Dtype> &info) { return name_of(info.param); });

}  // namespace
}  // namespace halyard::tests
