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

/** An input of a sum, on top of those before. */
float step(halyard_isa isa, float x, float w, float sum) {
    return isa == HALYARD_ISA_AVX512_BF16 ? fused_flushed(x, w, sum) : std::fmaf(x, w, sum);
}

TEST_P(Pairs, ResultsAreThoseOfTheModel) {
    const halyard_isa isa = GetParam();
    expect_model(isa, [&](std::int64_t inputs, const auto &x, const auto &w) {
        return sum_in_blocks(inputs, x, w, [&](float a, float b, float sum) { return step(isa, a, b, sum); });
    });
}

INSTANTIATE_TEST_SUITE_P(Isas, Pairs, testing::Values(HALYARD_ISA_AVX512_BF16, HALYARD_ISA_NEON_BF16),
                         [](const auto &info) { return std::string(halyard_isa_name(info.param)); });

}  // namespace
}  // namespace halyard::tests
