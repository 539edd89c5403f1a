// Rotary embedding of tensors of a CUDA device, by the library's way of launching kernels and the stand-in driver:
// against the float64 reference and bit by bit with the processor's kernels.
#include "support/attention.h"

#include <cmath>

#include "stand_ins.h"
#include "support/device_hooks.h"

namespace halyard::tests {
namespace {

struct RopeForm {
    std::int64_t head_dim, rotary_dim, batch, tokens, heads;
    int positions;     // 0: none, 1: int32 [T], 2: int64 [T], 3: int32 [batch, T], 4: int64 [batch, T]
    std::int64_t gap;  // elements after each head
    std::int64_t shift;
};

class CudaRope : public testing::TestWithParam<Dtype> {};

// The bits of the processor's kernels, which are tested against the definition.
TEST_P(CudaRope, HasTheBitsOfTheProcessor) {
    if (halyard_isa_supported(HALYARD_ISA_AVX2) == 0) {
        GTEST_SKIP() << "this processor has no fused multiply-add";
    }
    const Dtype type = GetParam();
    const RopeForm forms[] = {
        {64, 64, 0, 5, 3, 0, 0, 0},  {128, 128, 0, 2, 9, 1, 8, 0}, {128, 128, 2, 3, 2, 4, 0, 0},
        {128, 32, 0, 3, 2, 2, 0, 0}, {100, 34, 3, 2, 2, 3, 3, 1},  {6, 6, 0, 7, 1, 2, 0, 0},
        {64, 64, 0, 4, 17, 0, 5, 0}, {48, 16, 2, 3, 5, 4, 16, 3},
    };
    for (const bool interleaved : {false, true}) {
        for (const RopeForm &form : forms) {
            constexpr std::int64_t max_positions = 50;
            const Rope rope = make_rope(form.head_dim, form.rotary_dim, interleaved, max_positions);
            Shape shape = {form.tokens, form.heads, form.head_dim};
            if (form.batch > 0) {
                shape.insert(shape.begin(), form.batch);
            }
            const Form memory = {shape, form.gap > 0 ? padded_strides(shape, form.gap) : Shape(),
                                 Placement::starts_at_guard, form.shift, 0};
            Tensor x(type, memory), here(type, memory), there(type, memory);
            x.fill([](std::int64_t row, std::int64_t i) { return bell(3, row, i); });
            std::vector<std::int64_t> wide;
            for (std::int64_t i = 0; i < std::max<std::int64_t>(form.batch, 1) * form.tokens; i++) {
                wide.push_back((17 * i + 3) % max_positions);
            }
            std::vector<std::int32_t> narrow(wide.begin(), wide.end());
            const bool is_wide = form.positions % 2 == 0;
            const Shape position_shape =
                form.positions > 2 ? Shape{form.batch, form.tokens} : Shape{static_cast<std::int64_t>(wide.size())};
            PositionsOnDevice positions =
                is_wide ? PositionsOnDevice(wide, position_shape) : PositionsOnDevice(narrow, position_shape);
            const DLTensor *const given = form.positions > 0 ? &positions.view : nullptr;
            positions.view.device = {kDLCPU, 0};
            ASSERT_EQ(halyard_rope_apply(nullptr, rope.get(), &x.view, given, &here.view), HALYARD_OK)
                << halyard_last_error();
            to_device(x, there);
            positions.view.device = cuda_device;
            ASSERT_EQ(finished(halyard_rope_apply(nullptr, rope.get(), &x.view, given, &there.view)), HALYARD_OK)
                << halyard_last_error();
            ASSERT_TRUE(same_bits(type, here.all_bits(), there.all_bits()))
                << "head_dim " << form.head_dim << " " << form.rotary_dim << (interleaved ? " interleaved" : "");
            ASSERT_TRUE(there.surroundings_intact());
            ASSERT_EQ(finished(halyard_rope_apply(nullptr, rope.get(), &x.view, given, &x.view)), HALYARD_OK)
                << halyard_last_error();
            ASSERT_TRUE(same_bits(type, here.all_bits(), x.all_bits())) << "in place, head_dim " << form.head_dim;
            ASSERT_TRUE(x.surroundings_intact());
        }
    }
}

TEST_P(CudaRope, IsRight) {
    const Dtype type = GetParam();
    for (const bool interleaved : {false, true}) {
        const Rope rope = make_rope(64, 48, interleaved, 300);
        Tensor x(type, {{300, 2, 64}, {}, Placement::starts_at_guard, 0, 0}),
            y(type, {{300, 2, 64}, {}, Placement::starts_at_guard, 0, 0});
        x.fill([](std::int64_t row, std::int64_t i) { return bell(5, row, i); });
        to_device(x, y);
        ASSERT_EQ(finished(halyard_rope_apply(nullptr, rope.get(), &x.view, nullptr, &y.view)), HALYARD_OK)
            << halyard_last_error();
        Matrix expected;
        RopeRule rule;
        rule.rotary_dim = 48;
        rule.interleaved = interleaved;
        for (std::int64_t row = 0; row < x.rows(); row++) {
            ExpectedRow values;
            for (const double value : x.row_values(row)) {
                values.push_back({value, 0.0});
            }
            expected.push_back(rotated(values, rule, row / 2));
        }
        ASSERT_TRUE(as_expected(y, expected));
    }
}

// The call cannot look at positions on a device; the kernel does.
TEST_P(CudaRope, MakesNaNOfPositionsThatTheTableDoesNotHave) {
    const Rope rope = make_rope(32, 0, false, 10);
    Tensor x(GetParam(), compact_form({5, 1, 32})), y(GetParam(), compact_form({5, 1, 32}));
    x.fill([](std::int64_t row, std::int64_t i) { return bell(7, row, i); });
    to_device(x, y);
    const std::vector<std::int64_t> values = {9, 10, -1, std::int64_t{1} << 32, 0};
    const PositionsOnDevice positions(values, {5});
    ASSERT_EQ(finished(halyard_rope_apply(nullptr, rope.get(), &x.view, &positions.view, &y.view)), HALYARD_OK)
        << halyard_last_error();
    for (std::int64_t row = 0; row < 5; row++) {
        for (std::int64_t i = 0; i < 32; i++) {
            ASSERT_EQ(std::isnan(y.get(row, i)), row > 0 && row < 4) << row << " " << i;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaRope, testing::ValuesIn(all_dtypes),
                         [](const testing::TestParamInfo<Dtype> &info) { return name_of(info.param); });

using CudaRopeTable = OnStandIn;

TEST_F(CudaRopeTable, IsCopiedOnce) {
    const Rope rope = make_rope(64, 0, false, 20);
    Tensor x(Dtype::f32, compact_form({3, 2, 64}));
    x.fill([](std::int64_t, std::int64_t) { return 1.0; });
    to_device(x);
    ASSERT_EQ(halyard_rope_apply(nullptr, rope.get(), &x.view, nullptr, &x.view), HALYARD_OK) << halyard_last_error();
    const long before = allocations();
    const Rope other = make_rope(64, 0, false, 20);
    {
        const Capture capture;
        EXPECT_EQ(halyard_rope_apply(nullptr, rope.get(), &x.view, nullptr, &x.view), HALYARD_OK)
            << halyard_last_error();
        expect_message(halyard_rope_apply(nullptr, other.get(), &x.view, nullptr, &x.view), HALYARD_DEVICE_ERROR,
                       "is being captured");
    }
    EXPECT_EQ(allocations(), before);
}

TEST(CudaRopeArguments, AreOnOneDevice) {
    const Rope rope = make_rope(64, 0, false, 20);
    Tensor x(Dtype::f32, compact_form({3, 2, 64}));
    to_device(x);
    PositionsOnDevice positions(std::vector<std::int32_t>{0, 1, 2}, {3});
    positions.view.device = {kDLCPU, 0};
    expect_message(halyard_rope_apply(nullptr, rope.get(), &x.view, &positions.view, &x.view), HALYARD_UNSUPPORTED,
                   "positions is on the CPU");
}

}  // namespace
}  // namespace halyard::tests
