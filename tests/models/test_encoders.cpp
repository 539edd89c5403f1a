// Encoders against what Hugging Face transformers computes with the same files (data/models/make_fixtures.py).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/model_folder.h"
#include "support/models.h"

namespace halyard::tests {
namespace {

/** The hidden state after the embedding, after each block, and again after the norm that is not there. */
States states_of(const Model &model, const Transformers &expected, const Context &context) {
    const std::vector<std::int64_t> types = expected.integers("token_type_ids");
    const std::size_t tokens = types.size(), width = static_cast<std::size_t>(model.config().stack.hidden_size);
    States states;
    halyard_stack_options options{};
    options.user = &states;
    options.observer = [](void *user, std::int64_t, std::int64_t, const DLTensor *hidden) {
        const auto *const values = static_cast<const float *>(hidden->data);
        static_cast<States *>(user)->emplace_back(values, values + hidden->shape[1] * hidden->shape[2]);
    };
    const TokenIds ids(expected.input_ids), type_ids(types);
    options.token_types = type_ids.get();
    std::vector<float> last(tokens * width);
    const Tensor view(last, {tokens, width});
    check(halyard_stack_hidden_states(context, model.stack().get(), ids.get(), nullptr, nullptr, &options, view.get()));
    EXPECT_EQ(states.back(), last);
    states.pop_back();
    return states;
}

TEST(Bert, AgreesInFloat32) {
    const Model model = Model::load(model_fixtures / "bert_f32");
    const Transformers expected(model_fixtures / "bert_f32");
    const States want = expected.states();
    ASSERT_EQ(want.size(), model.config().blocks.size() + 1);
    for (int i = 0; i < halyard_isa_count(); i++) {
        const auto isa = static_cast<Isa>(halyard_isa_at(i));
        if (supported(isa)) {
            Context context;
            context.set_max_isa(isa);
            EXPECT_LT(f32_part(model, states_of(model, expected, context), want, expected.input_ids.size()), 1)
                << to_string(isa);
        }
    }
}

TEST(Bert, AgreesInBfloat16) {
    const Model model = Model::load(model_fixtures / "bert_bf16");
    const Transformers expected(model_fixtures / "bert_bf16");
    EXPECT_LT(
        part_of_bound(states_of(model, expected, Context()), expected.states(),
                      [&](std::size_t layer) { return bound(bf16_roundoff, bf16_roundings(model.config(), layer)); }),
        1);
    Context full;
    full.set_products(Products::full);
    EXPECT_LT(f32_part(model, states_of(model, expected, full), expected.states("exact."), expected.input_ids.size()),
              1);
}

TEST(Bert, HasHiddenStatesAlone) {
    const Model model = Model::load(model_fixtures / "bert_f32");
    std::vector<float> logits(static_cast<std::size_t>(model.config().stack.vocab_size));
    KvCache cache = model.make_cache();
    EXPECT_TRUE(throws(
        HALYARD_INVALID_ARGUMENT,
        [&] {
            model.forward({1, 2}, cache, logits);
        },
        "no lm_head"));
}

TEST(Bert, MayBeOfAFileForATaskAndOld) {
    const Transformers expected(model_fixtures / "bert_f32");
    const States want = states_of(Folder("bert_f32").load(), expected, Context());
    for (const char *const architecture : {"BertForMaskedLM", "BertForPreTraining"}) {
        Folder old("bert_f32");
        old.config["architectures"] = nlohmann::json::array({architecture});
        std::map<std::string, StoredTensor> renamed;
        for (const auto &[name, tensor] : old.tensors) {
            std::string now = "bert." + name;
            for (const auto &[from, to] :
                 {std::pair("LayerNorm.weight", "LayerNorm.gamma"), std::pair("LayerNorm.bias", "LayerNorm.beta")}) {
                if (const std::size_t at = now.find(from); at != std::string::npos) {
                    now.replace(at, std::string(from).size(), to);
                }
            }
            renamed[now] = tensor;
        }
        renamed["bert.embeddings.position_ids"] = {"I64", {1, 1}, std::string(8, '\0')};
        renamed["cls.predictions.bias"] = {"F32", {1}, std::string(4, '\0')};
        old.tensors = renamed;
        EXPECT_EQ(states_of(old.load(), expected, Context()), want) << architecture;
        old.tensors["bert.surplus"] = {"F32", {1}, std::string(4, '\0')};
        EXPECT_TRUE(old.refused(HALYARD_INVALID_ARGUMENT, "bert.surplus", "BertModel"));
    }
}

TEST(Bert, FeelsEveryFieldOfTheConfiguration) {
    const Transformers expected(model_fixtures / "bert_f32");
    for (const char *const change :
         {R"({"layer_norm_eps":0.0029})", R"({"hidden_act":"gelu_new"})", R"({"num_attention_heads":1})"}) {
        Folder folder("bert_f32");
        folder.config.merge_patch(nlohmann::json::parse(change));
        const Model model = folder.load();
        EXPECT_GT(f32_part(model, states_of(model, expected, Context()), expected.states(), expected.input_ids.size()),
                  10)
            << change;
    }
    for (const auto &[change, word] :
         {std::pair(R"({"is_decoder":true})", "is_decoder"), std::pair(R"({"add_cross_attention":true})", "add_cross"),
          std::pair(R"({"position_embedding_type":"relative_key"})", "'relative_key'")}) {
        Folder folder("bert_f32");
        folder.config.merge_patch(nlohmann::json::parse(change));
        EXPECT_TRUE(folder.refused(HALYARD_UNSUPPORTED, word)) << change;
    }
    Folder folder("bert_f32");
    folder.config["type_vocab_size"] = 2;
    EXPECT_TRUE(folder.refused(HALYARD_INVALID_ARGUMENT, "token_type_embeddings.weight", "[2, 33]"));
}

}  // namespace
}  // namespace halyard::tests
