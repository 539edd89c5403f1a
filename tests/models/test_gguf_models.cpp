// Models in GGUF files: the same bits as the same models in folders of transformers give.
#include <gtest/gtest.h>

#include <random>

#include "gguf_blocks.h"
#include "support/gguf_model.h"

namespace halyard::tests {
namespace {

class GgufModels : public testing::TestWithParam<const char *> {};
INSTANTIATE_TEST_SUITE_P(All, GgufModels, testing::ValuesIn(architectures),
                         [](const auto &each) { return std::string(each.param); });

const std::vector<std::int64_t> &tokens() {
    static const std::vector<std::int64_t> ids = Transformers(model_fixtures / "llama3_f32").input_ids;
    return ids;
}

void round_to_f16(Folder &folder) {
    for (auto &[name, tensor] : folder.tensors) {
        const std::vector<float> values = floats_of(tensor);
        std::vector<f16> halves(values.size());
        cast(values, halves);
        tensor = {"F16", tensor.shape, {reinterpret_cast<const char *>(halves.data()), halves.size() * sizeof(f16)}};
    }
}

TEST_P(GgufModels, GiveTheBitsOfFolders) {
    for (const char *const dtype : {"_f32", "_bf16", "_f16"}) {
        Folder folder(GetParam() + std::string(std::string_view(dtype) == "_bf16" ? "_bf16" : "_f32"));
        make_expressible(folder);
        if (std::string_view(dtype) == "_f16") {
            round_to_f16(folder);
        }
        const Model want = folder.load();
        write_text(folder / "x.gguf", gguf_of(folder).bytes());
        const Model got = Model::load(folder / "x.gguf");
        EXPECT_EQ(run_prompt(got, tokens()), run_prompt(want, tokens())) << dtype;
        EXPECT_EQ(got.max_positions(), want.max_positions());
        EXPECT_EQ(got.block_bytes(), want.block_bytes());
        EXPECT_EQ(got.config().architecture, want.config().architecture);
        EXPECT_EQ(got.config().tie_word_embeddings, want.config().tie_word_embeddings);
        EXPECT_EQ(got.config().eos_token_ids, want.config().eos_token_ids);
    }
}

}  // namespace
}  // namespace halyard::tests
