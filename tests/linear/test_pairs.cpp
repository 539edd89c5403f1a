// Products of bf16 by instructions that take pairs of inputs: bit by bit those of the instructions' models.
#include "support/bf16_models.h"
#include "support/bf16_products.h"

namespace halyard::tests {
namespace {

class Pairs : public testing::TestWithParam<halyard_isa> {
protected:
    void SetUp() override {
        if (halyard_isa_supported(GetParam()) == 0) {
            GTEST_SKIP() << "this machine or this library has no " << halyard_isa_name(GetParam());
        }
    }
};

/** A pair of inputs on top of those before. */
float step(halyard_isa isa, float x0, float w0, float x1, float w1, float sum) {
    switch (isa) {
    case HALYARD_ISA_AVX512_BF16:
        return fused_flushed(x1, w1, fused_flushed(x0, w0, sum));
    case HALYARD_ISA_NEON_BF16:
        return std::fmaf(x1, w1, std::fmaf(x0, w0, sum));
    default:
        return add_dot_product(x0, w0, x1, w1, sum);
    }
}

TEST_P(Pairs, ResultsAreThoseOfTheModel) {
    const halyard_isa isa = GetParam();
    expect_model(isa, [&](std::int64_t inputs, const auto &x, const auto &w) {
        return sum_in_blocks(inputs, x, w, [&](float x0, float w0, float x1, float w1, float sum) {
            return step(isa, x0, w0, x1, w1, sum);
        });
    });
}

INSTANTIATE_TEST_SUITE_P(Isas, Pairs,
                         testing::Values(HALYARD_ISA_AVX512_BF16, HALYARD_ISA_NEON_BF16, HALYARD_ISA_NEON_BFDOT,
                                         HALYARD_ISA_NEON_BFMMLA),
                         [](const auto &info) { return std::string(halyard_isa_name(info.param)); });

}  // namespace
}  // namespace halyard::tests
