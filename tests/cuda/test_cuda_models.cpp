// Models on a CUDA device, by the stand-ins for driver and cuBLASLt, against what transformers computed with the same
// files.
#include <gtest/gtest.h>

#include "support/models.h"

namespace halyard::tests {
namespace {

Model load(const std::string &name) {
    LoadOptions options;
    options.device = DLDevice{kDLCUDA, 0};
    return Model::load(model_fixtures / name, options);
}

class CudaModels : public testing::TestWithParam<const char *> {};

TEST_P(CudaModels, AgreeInFloat32) {
    const std::string name = GetParam() + std::string("_f32");
    const Model model = load(name);
    const Transformers expected(model_fixtures / name);
    const States want = expected.states();
    ASSERT_EQ(want.size(), model.config().blocks.size() + 3);
    const std::size_t tokens = expected.input_ids.size();
    EXPECT_LT(f32_part(model, run_prompt(model, expected.input_ids), want, tokens), 1);
    KvCache cache = model.make_cache();
    EXPECT_LT(f32_part(model, run_token_by_token(model, expected.input_ids, cache), want, tokens), 1);
    EXPECT_EQ(cache.length(0, 0), static_cast<std::int64_t>(tokens));
}

// Transformers and the device both round what lies between products to bfloat16, though not at the same places: the
// roundings of both come between them.
TEST_P(CudaModels, AgreeInBfloat16) {
    const std::string name = GetParam() + std::string("_bf16");
    const Model model = load(name);
    const Transformers expected(model_fixtures / name);
    const auto part = [&](const States &got) {
        return part_of_bound(got, expected.states(), [&](std::size_t layer) {
            return bound(bf16_roundoff, 2 * bf16_roundings(model.config(), layer));
        });
    };
    EXPECT_LT(part(run_prompt(model, expected.input_ids)), 1);
    KvCache cache = model.make_cache(0, element<bf16>::dtype);
    EXPECT_LT(part(run_token_by_token(model, expected.input_ids, cache)), 1);
}

TEST_P(CudaModels, GenerateTheSameTokens) {
    const std::string name = GetParam() + std::string("_f32");
    const Transformers expected(model_fixtures / name);
    const std::vector<std::int64_t> wanted = expected.integers("generated");
    EXPECT_EQ(generate(load(name), expected.input_ids, wanted.size()), wanted);
}

// Rotary embedding with head norms, sandwich norms with soft caps and windows, learned positions with biases.
INSTANTIATE_TEST_SUITE_P(Some, CudaModels, testing::Values("gpt2", "llama3", "qwen3", "gemma2"),
                         [](const auto &each) { return std::string(each.param); });

TEST(CudaModel, SaysThatThereIsNoSuchDevice) {
    LoadOptions options;
    options.device = DLDevice{kDLCUDA, 99};
    try {
        Model::load(model_fixtures / "llama3_f32", options);
        FAIL() << "it was loaded";
    } catch (const Error &error) {
        EXPECT_EQ(error.status(), HALYARD_NO_DEVICE);
        EXPECT_NE(std::string(error.what()).find("there is no CUDA device 99"), std::string::npos) << error.what();
    }
}

}  // namespace
}  // namespace halyard::tests
