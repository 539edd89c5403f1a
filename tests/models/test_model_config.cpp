// config.json: what each architecture's fields mean, and what is refused.
#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "halyard/model.hpp"
#include "support/files.h"
#include "support/models.h"

namespace halyard::tests {
namespace {

using nlohmann::json;

// As published models write them, in the spelling of transformers 4, with fewer layers and without what does not
// matter.
const char *const gpt2 = R"({"architectures":["GPT2LMHeadModel"],"activation_function":"gelu_new","attn_pdrop":0.1,
    "bos_token_id":50256,"eos_token_id":50256,"layer_norm_epsilon":1e-05,"model_type":"gpt2","n_ctx":1024,"n_embd":768,
    "n_head":12,"n_layer":3,"n_positions":1024,"vocab_size":50257})";
const char *const llama = R"({"architectures":["LlamaForCausalLM"],"attention_bias":false,"bos_token_id":128000,
    "eos_token_id":[128001,128008,128009],"hidden_act":"silu","hidden_size":4096,"intermediate_size":14336,
    "max_position_embeddings":131072,"mlp_bias":false,"model_type":"llama","num_attention_heads":32,
    "num_hidden_layers":3,"num_key_value_heads":8,"pretraining_tp":1,"rms_norm_eps":1e-05,"rope_scaling":{"factor":8.0,"low_freq_factor":1.0,
    "high_freq_factor":4.0,"original_max_position_embeddings":8192,"rope_type":"llama3"},"rope_theta":500000.0,
    "tie_word_embeddings":false,"torch_dtype":"bfloat16","vocab_size":128256})";
const char *const mistral = R"({"architectures":["MistralForCausalLM"],"bos_token_id":1,"eos_token_id":2,
    "hidden_act":"silu","hidden_size":4096,"intermediate_size":14336,"max_position_embeddings":32768,
    "model_type":"mistral","num_attention_heads":32,"num_hidden_layers":3,"num_key_value_heads":8,"rms_norm_eps":1e-05,
    "rope_theta":10000.0,"sliding_window":4096,"tie_word_embeddings":false,"vocab_size":32000})";
const char *const qwen2 = R"({"architectures":["Qwen2ForCausalLM"],"attention_dropout":0.0,"bos_token_id":151643,
    "eos_token_id":151645,"hidden_act":"silu","hidden_size":896,"intermediate_size":4864,
    "max_position_embeddings":32768,"max_window_layers":21,"model_type":"qwen2","num_attention_heads":14,"num_hidden_layers":3,"num_key_value_heads":2,
    "rms_norm_eps":1e-06,"rope_theta":1000000.0,"sliding_window":32768,"tie_word_embeddings":true,
    "use_sliding_window":false,"vocab_size":151936})";
const char *const qwen3 = R"({"architectures":["Qwen3ForCausalLM"],"attention_bias":false,"eos_token_id":151645,
    "head_dim":128,"hidden_act":"silu","hidden_size":1024,"intermediate_size":3072,"max_position_embeddings":40960,
    "max_window_layers":28,"model_type":"qwen3","num_attention_heads":16,"num_hidden_layers":3,"num_key_value_heads":8,
    "rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":1000000,"sliding_window":null,"tie_word_embeddings":true,
    "use_sliding_window":false,"vocab_size":151936})";
const char *const gemma = R"({"architectures":["GemmaForCausalLM"],"attention_bias":false,"eos_token_id":1,
    "head_dim":256,"hidden_act":"gelu","hidden_size":2048,"intermediate_size":16384,"max_position_embeddings":8192,
    "model_type":"gemma","num_attention_heads":8,"num_hidden_layers":3,"num_key_value_heads":1,"rms_norm_eps":1e-06,
    "rope_scaling":null,"rope_theta":10000.0,"vocab_size":256000})";
const char *const gemma2 = R"({"architectures":["Gemma2ForCausalLM"],"attention_bias":false,
    "attn_logit_softcapping":50.0,"cache_implementation":"hybrid","eos_token_id":1,"final_logit_softcapping":30.0,
    "head_dim":256,"hidden_act":"gelu_pytorch_tanh","hidden_activation":"gelu_pytorch_tanh","hidden_size":2304,
    "intermediate_size":9216,"max_position_embeddings":8192,"model_type":"gemma2","num_attention_heads":8,
    "num_hidden_layers":4,"num_key_value_heads":4,"query_pre_attn_scalar":224,"rms_norm_eps":1e-06,"rope_theta":10000.0,
    "sliding_window":4096,"vocab_size":256000})";
const char *const gemma3 = R"({"architectures":["Gemma3ForCausalLM"],"attention_bias":false,
    "attn_logit_softcapping":null,"eos_token_id":[1,106],"final_logit_softcapping":null,"head_dim":256,
    "hidden_activation":"gelu_pytorch_tanh","hidden_size":1152,"intermediate_size":6912,"max_position_embeddings":32768,
    "model_type":"gemma3_text","num_attention_heads":4,"num_hidden_layers":8,"num_key_value_heads":1,
    "query_pre_attn_scalar":256,"rms_norm_eps":1e-06,"rope_local_base_freq":10000,"rope_scaling":null,
    "rope_theta":1000000,"sliding_window":512,"sliding_window_pattern":6,"vocab_size":262144})";
const char *const all_models[] = {gpt2, llama, mistral, qwen2, qwen3, gemma, gemma2, gemma3};

/// The numbers of a configuration that are not whole.
std::vector<double> numbers_of(const ModelConfig &config) {
    const BlockConfig &block = config.blocks.front();
    return {block.rms_norm_eps,          block.query_pre_attn_scalar, block.attn_logit_softcapping,
            block.rope.rope_theta,       block.rope.factor,           block.rope.low_freq_factor,
            block.rope.high_freq_factor, config.stack.rms_norm_eps,   config.stack.embedding_multiplier};
}

TEST(ModelConfig, IsTheSameHoweverTheCallerRounds) {
    for (const char *const text : all_models) {
        const std::vector<double> expected = numbers_of(ModelConfig::parse(text));
        for (const int rounding : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
            std::fesetround(rounding);
            const ModelConfig config = ModelConfig::parse(text);
            EXPECT_EQ(std::fegetround(), rounding);
            std::fesetround(FE_TONEAREST);
            EXPECT_EQ(numbers_of(config), expected) << text;
        }
    }
}

/** `base` with the fields of `changes`; a field that is "absent" there is taken out. */
std::string changed(const char *base, const std::string &changes) {
    json result = json::parse(base);
    const json fields = json::parse(changes);
    for (const auto &[name, value] : fields.items()) {
        if (value == "absent") {
            result.erase(name);
        } else {
            result[name] = value;
        }
    }
    return result.dump();
}

ModelConfig parse(const char *base, const std::string &changes = "{}") {
    return ModelConfig::parse(changed(base, changes));
}

std::vector<std::int64_t> windows(const ModelConfig &config) {
    std::vector<std::int64_t> result;
    for (const BlockConfig &block : config.blocks) {
        result.push_back(block.sliding_window);
    }
    return result;
}

using Windows = std::vector<std::int64_t>;

TEST(ModelConfig, OfGpt2) {
    const ModelConfig config = parse(gpt2);
    EXPECT_EQ(config.architecture, Architecture::gpt2);
    EXPECT_STREQ(to_string(config.architecture), "GPT2LMHeadModel");
    ASSERT_EQ(config.blocks.size(), 3u);
    const BlockConfig &block = config.blocks[2];
    EXPECT_EQ(block.hidden_size, 768);
    EXPECT_EQ(block.intermediate_size, 3072);
    EXPECT_EQ(block.num_attention_heads, 12);
    EXPECT_EQ(block.num_key_value_heads, 12);
    EXPECT_EQ(block.head_dim, 64);
    EXPECT_EQ(block.norm, Norm::layer);
    EXPECT_EQ(block.norm_placement, NormPlacement::pre);
    EXPECT_EQ(block.norm_flags, 0u);
    EXPECT_EQ(block.rms_norm_eps, 1e-5f);
    EXPECT_EQ(block.hidden_act, Activation::gelu_tanh);
    EXPECT_FALSE(block.gated_mlp);
    EXPECT_TRUE(block.causal);
    EXPECT_EQ(block.query_pre_attn_scalar, 64.0f);
    EXPECT_EQ(block.rope.rope_theta, 0);
    EXPECT_EQ(block.max_position_embeddings, 1024);
    EXPECT_EQ(config.stack.vocab_size, 50257);
    EXPECT_EQ(config.stack.hidden_size, 768);
    EXPECT_EQ(config.stack.norm, Norm::layer);
    EXPECT_EQ(config.stack.rms_norm_eps, 1e-5f);
    EXPECT_EQ(config.stack.embedding_multiplier, 1.0f);
    EXPECT_EQ(config.stack.final_logit_softcapping, 0.0f);
    EXPECT_TRUE(config.tie_word_embeddings && config.qkv_bias && config.output_bias && config.mlp_bias);
    EXPECT_FALSE(config.qk_norm);
    EXPECT_EQ(config.eos_token_ids, (std::vector<std::int64_t>{50256}));
    EXPECT_EQ(parse(gpt2, R"({"n_inner":100})").blocks[0].intermediate_size, 100);
    EXPECT_EQ(parse(gpt2, R"({"n_inner":null})").blocks[0].intermediate_size, 3072);
    EXPECT_EQ(parse(gpt2, R"({"scale_attn_weights":false})").blocks[1].query_pre_attn_scalar, 1.0f);
    const ModelConfig by_layer = parse(gpt2, R"({"scale_attn_by_inverse_layer_idx":true})");
    EXPECT_EQ(by_layer.blocks[0].query_pre_attn_scalar, 64.0f);
    EXPECT_EQ(by_layer.blocks[2].query_pre_attn_scalar, 64.0f * 9);
}

TEST(ModelConfig, OfLlama) {
    const ModelConfig config = parse(llama);
    EXPECT_EQ(config.architecture, Architecture::llama);
    ASSERT_EQ(config.blocks.size(), 3u);
    const BlockConfig &block = config.blocks[0];
    EXPECT_EQ(block.hidden_size, 4096);
    EXPECT_EQ(block.intermediate_size, 14336);
    EXPECT_EQ(block.num_attention_heads, 32);
    EXPECT_EQ(block.num_key_value_heads, 8);
    EXPECT_EQ(block.head_dim, 128);
    EXPECT_EQ(block.norm, Norm::rms);
    EXPECT_EQ(block.rms_norm_eps, 1e-5f);
    EXPECT_EQ(block.hidden_act, Activation::silu);
    EXPECT_TRUE(block.gated_mlp);
    EXPECT_EQ(block.sliding_window, 0);
    EXPECT_EQ(block.query_pre_attn_scalar, 128.0f);
    EXPECT_EQ(block.attn_logit_softcapping, 0.0f);
    EXPECT_EQ(block.rope.rope_theta, 500000);
    EXPECT_FALSE(block.rope.interleaved);
    EXPECT_EQ(block.rope.scaling, RopeScaling::llama3);
    EXPECT_EQ(block.rope.factor, 8);
    EXPECT_EQ(block.rope.low_freq_factor, 1);
    EXPECT_EQ(block.rope.high_freq_factor, 4);
    EXPECT_EQ(block.rope.original_max_position_embeddings, 8192);
    EXPECT_EQ(config.max_position_embeddings, 131072);
    EXPECT_EQ(config.stack.norm, Norm::rms);
    EXPECT_FALSE(config.tie_word_embeddings || config.qkv_bias || config.output_bias || config.mlp_bias ||
                 config.qk_norm);
    EXPECT_EQ(config.eos_token_ids, (std::vector<std::int64_t>{128001, 128008, 128009}));

    const ModelConfig biased = parse(llama, R"({"attention_bias":true,"mlp_bias":true,"head_dim":64})");
    EXPECT_TRUE(biased.qkv_bias && biased.output_bias && biased.mlp_bias);
    EXPECT_EQ(biased.blocks[0].head_dim, 64);
    EXPECT_EQ(biased.blocks[0].query_pre_attn_scalar, 64.0f);
    EXPECT_EQ(parse(llama, R"({"num_key_value_heads":"absent"})").blocks[0].num_key_value_heads, 32);
    EXPECT_EQ(parse(llama, R"({"rms_norm_eps":"absent"})").stack.rms_norm_eps, 1e-6f);
    EXPECT_TRUE(parse(llama, R"({"eos_token_id":null})").eos_token_ids.empty());
    EXPECT_FALSE(parse(llama, R"({"tie_word_embeddings":"absent"})").tie_word_embeddings);
}

TEST(ModelConfig, OfRotaryEmbeddingsInBothSpellings) {
    const auto rope = [](const std::string &changes) { return parse(llama, changes).blocks[1].rope; };
    const auto same = [](const RopeOptions &a, const RopeOptions &b) {
        return a.rope_theta == b.rope_theta && a.scaling == b.scaling && a.factor == b.factor &&
               a.low_freq_factor == b.low_freq_factor && a.high_freq_factor == b.high_freq_factor &&
               a.original_max_position_embeddings == b.original_max_position_embeddings;
    };
    EXPECT_TRUE(same(rope("{}"), rope(R"({"rope_scaling":"absent","rope_theta":"absent","rope_parameters":{
        "rope_type":"llama3","rope_theta":500000.0,"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
        "original_max_position_embeddings":8192}})")));
    EXPECT_EQ(rope(R"({"rope_scaling":null,"rope_theta":"absent"})").rope_theta, 10000);
    EXPECT_EQ(rope(R"({"rope_scaling":null})").scaling, RopeScaling::none);
    EXPECT_EQ(rope(R"({"rope_scaling":{"type":"default"}})").scaling, RopeScaling::none);
    EXPECT_EQ(rope(R"({"rope_scaling":{}})").rope_theta, 500000);
    for (const char *const type : {"type", "rope_type"}) {
        const RopeOptions linear = rope(std::string(R"({"rope_scaling":{")") + type + R"(":"linear","factor":4}})");
        EXPECT_EQ(linear.scaling, RopeScaling::linear);
        EXPECT_EQ(linear.factor, 4);
        EXPECT_EQ(linear.rope_theta, 500000);
    }
    const std::string without =
        R"("rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4})";
    EXPECT_EQ(rope("{" + without + "}").original_max_position_embeddings, 131072);
}

TEST(ModelConfig, OfMistral) {
    const ModelConfig config = parse(mistral);
    EXPECT_EQ(config.architecture, Architecture::mistral);
    EXPECT_EQ(windows(config), (Windows{4096, 4096, 4096}));
    EXPECT_EQ(windows(parse(mistral, R"({"sliding_window":null})")), (Windows{0, 0, 0}));
    EXPECT_EQ(windows(parse(mistral, R"({"sliding_window":"absent"})")), (Windows{4096, 4096, 4096}));
    EXPECT_EQ(config.blocks[0].rope.rope_theta, 10000);
    EXPECT_FALSE(config.qkv_bias || config.output_bias || config.tie_word_embeddings);
}

TEST(ModelConfig, OfQwen) {
    const ModelConfig second = parse(qwen2);
    EXPECT_EQ(second.architecture, Architecture::qwen2);
    EXPECT_EQ(windows(second), (Windows{0, 0, 0}));
    EXPECT_EQ(second.blocks[0].head_dim, 64);
    EXPECT_TRUE(second.qkv_bias && second.tie_word_embeddings);
    EXPECT_FALSE(second.output_bias || second.qk_norm);
    EXPECT_EQ(windows(parse(qwen2, R"({"use_sliding_window":true,"max_window_layers":2,"sliding_window":7})")),
              (Windows{0, 0, 7}));
    EXPECT_EQ(windows(parse(qwen2, R"({"use_sliding_window":true,"sliding_window":7,
        "layer_types":["full_attention","sliding_attention","full_attention"]})")),
              (Windows{0, 7, 0}));

    const ModelConfig third = parse(qwen3);
    EXPECT_EQ(third.architecture, Architecture::qwen3);
    EXPECT_EQ(third.blocks[0].head_dim, 128);
    EXPECT_EQ(third.blocks[0].rope.rope_theta, 1000000);
    EXPECT_TRUE(third.qk_norm && third.tie_word_embeddings);
    EXPECT_FALSE(third.qkv_bias || third.output_bias);
    const ModelConfig biased = parse(qwen3, R"({"attention_bias":true})");
    EXPECT_TRUE(biased.qkv_bias && biased.output_bias);
}

TEST(ModelConfig, OfGemma) {
    const ModelConfig first = parse(gemma);
    EXPECT_EQ(first.architecture, Architecture::gemma);
    EXPECT_EQ(first.blocks[0].hidden_act, Activation::gelu_tanh);
    EXPECT_EQ(parse(gemma, R"({"hidden_act":"absent"})").blocks[0].hidden_act, Activation::gelu_tanh);
    EXPECT_EQ(parse(gemma, R"({"hidden_activation":"relu"})").blocks[0].hidden_act, Activation::relu);
    EXPECT_EQ(first.blocks[0].norm_flags, static_cast<unsigned>(HALYARD_RMS_UNIT_OFFSET));
    EXPECT_EQ(first.blocks[0].norm_placement, NormPlacement::pre);
    EXPECT_EQ(first.stack.norm_flags, static_cast<unsigned>(HALYARD_RMS_UNIT_OFFSET));
    EXPECT_EQ(first.stack.embedding_multiplier, std::sqrt(2048.0f));
    EXPECT_EQ(first.stack.final_logit_softcapping, 0.0f);
    EXPECT_EQ(first.blocks[0].query_pre_attn_scalar, 256.0f);
    EXPECT_TRUE(first.tie_word_embeddings);

    const ModelConfig second = parse(gemma2);
    EXPECT_EQ(windows(second), (Windows{4096, 0, 4096, 0}));
    EXPECT_EQ(second.blocks[1].norm_placement, NormPlacement::sandwich);
    EXPECT_EQ(second.blocks[1].query_pre_attn_scalar, 224.0f);
    EXPECT_EQ(second.blocks[1].attn_logit_softcapping, 50.0f);
    EXPECT_EQ(second.stack.final_logit_softcapping, 30.0f);
    EXPECT_FALSE(second.qk_norm);
    const ModelConfig uncapped = parse(gemma2, R"({"attn_logit_softcapping":null,"final_logit_softcapping":null})");
    EXPECT_EQ(uncapped.blocks[0].attn_logit_softcapping, 0.0f);
    EXPECT_EQ(uncapped.stack.final_logit_softcapping, 0.0f);
    const ModelConfig silent =
        parse(gemma2, R"({"attn_logit_softcapping":"absent","final_logit_softcapping":"absent"})");
    EXPECT_EQ(silent.blocks[0].attn_logit_softcapping, 50.0f);
    EXPECT_EQ(silent.stack.final_logit_softcapping, 30.0f);

    const ModelConfig third = parse(gemma3);
    EXPECT_EQ(windows(third), (Windows{512, 512, 512, 512, 512, 0, 512, 512}));
    EXPECT_TRUE(third.qk_norm);
    EXPECT_EQ(third.stack.final_logit_softcapping, 0.0f);
    for (const BlockConfig &block : third.blocks) {
        EXPECT_EQ(block.rope.rope_theta, block.sliding_window != 0 ? 10000 : 1000000);
        EXPECT_EQ(block.rope.scaling, RopeScaling::none);
    }
    // rope_scaling is of the layers without a window.
    const ModelConfig scaled = parse(gemma3, R"({"rope_scaling":{"factor":8.0,"rope_type":"linear"}})");
    for (const BlockConfig &block : scaled.blocks) {
        EXPECT_EQ(block.rope.scaling, block.sliding_window != 0 ? RopeScaling::none : RopeScaling::linear);
    }
    const ModelConfig newer = parse(gemma3, R"({"rope_scaling":"absent","rope_theta":"absent",
        "rope_local_base_freq":"absent","sliding_window_pattern":"absent","num_hidden_layers":2,
        "layer_types":["full_attention","sliding_attention"],"rope_parameters":{
        "full_attention":{"rope_type":"linear","factor":8.0,"rope_theta":500},
        "sliding_attention":{"rope_type":"default","rope_theta":50}}})");
    EXPECT_EQ(windows(newer), (Windows{0, 512}));
    EXPECT_EQ(newer.blocks[0].rope.rope_theta, 500);
    EXPECT_EQ(newer.blocks[0].rope.factor, 8);
    EXPECT_EQ(newer.blocks[1].rope.rope_theta, 50);
    EXPECT_EQ(newer.blocks[1].rope.scaling, RopeScaling::none);
    const ModelConfig half = parse(gemma3, R"({"rope_theta":"absent","rope_scaling":"absent",
        "rope_local_base_freq":"absent","rope_parameters":{"full_attention":{"rope_theta":7}}})");
    EXPECT_EQ(half.blocks[0].rope.rope_theta, 10000);
    EXPECT_EQ(half.blocks[5].rope.rope_theta, 7);
}

/** All that a configuration says, or that it is refused. */
std::string outcome(const json &fields) {
    std::ostringstream text;
    try {
        const ModelConfig config = ModelConfig::parse(fields.dump());
        text << config.max_position_embeddings << config.tie_word_embeddings << config.qkv_bias << config.output_bias
             << config.mlp_bias << config.qk_norm << " eos";
        for (const std::int64_t token : config.eos_token_ids) {
            text << ' ' << token;
        }
        const StackConfig &stack = config.stack;
        text << "\nstack " << stack.vocab_size << ' ' << stack.hidden_size << ' ' << stack.embedding_multiplier << ' '
             << static_cast<int>(stack.norm) << ' ' << stack.rms_norm_eps << ' ' << stack.norm_flags << ' '
             << stack.final_logit_softcapping;
        for (const BlockConfig &block : config.blocks) {
            const RopeOptions &rope = block.rope;
            text << "\nblock " << block.hidden_size << ' ' << block.intermediate_size << ' '
                 << block.num_attention_heads << ' ' << block.num_key_value_heads << ' ' << block.head_dim << ' '
                 << static_cast<int>(block.norm) << ' ' << static_cast<int>(block.norm_placement) << ' '
                 << block.rms_norm_eps << ' ' << block.norm_flags << ' ' << static_cast<int>(block.hidden_act) << ' '
                 << block.gated_mlp << ' ' << block.sliding_window << ' ' << block.query_pre_attn_scalar << ' '
                 << block.attn_logit_softcapping << ' ' << block.max_position_embeddings << " rope " << rope.rope_theta
                 << ' ' << static_cast<int>(rope.scaling) << ' ' << rope.factor << ' ' << rope.low_freq_factor << ' '
                 << rope.high_freq_factor << ' ' << rope.original_max_position_embeddings;
        }
    } catch (const Error &) {
        text << "refused";
    }
    return text.str();
}

// What transformers makes of files with some fields (data/models/make_absent_fields.py).
TEST(ModelConfig, OfFilesWithoutSomeFields) {
    int refused = 0, accepted = 0;
    for (const json &entry : json::parse(read_text(model_fixtures / "absent_fields.json"))) {
        json given = entry["given"], means = entry["means"];
        given["architectures"] = json::array({entry["architecture"]});
        if (means.is_null()) {
            EXPECT_EQ(outcome(given), "refused") << given;
            refused++;
            continue;
        }
        means["architectures"] = given["architectures"];
        const std::string complete = outcome(means);
        EXPECT_EQ(outcome(given), complete) << given;
        accepted += complete != "refused" ? 1 : 0;
    }
    EXPECT_GT(refused, 60);
    EXPECT_GT(accepted, 60);
}

TEST(ModelConfig, OfActivations) {
    const std::pair<const char *, Activation> names[] = {
        {"gelu", Activation::gelu},
        {"gelu_new", Activation::gelu_tanh},
        {"gelu_pytorch_tanh", Activation::gelu_tanh},
        {"gelu_fast", Activation::gelu_tanh},
        {"relu", Activation::relu},
        {"quick_gelu", Activation::gelu_sigmoid},
        {"silu", Activation::silu},
        {"swish", Activation::silu},
        {"tanh", Activation::tanh},
        {"sigmoid", Activation::sigmoid},
        {"linear", Activation::identity},
        {"gelu_python", Activation::gelu},
    };
    for (const auto &[name, activation] : names) {
        const std::string change = std::string(R"({"activation_function":")") + name + "\"}";
        EXPECT_EQ(parse(gpt2, change).blocks[0].hidden_act, activation) << name;
    }
}

TEST(ModelConfigRefuses, WhatItCannotCompute) {
    const struct {
        const char *base;
        std::string change;
        const char *words[2];
    } all[] = {
        {llama, R"({"architectures":["T5Model"]})", {"architectures holds 'T5Model'", "LlamaForCausalLM"}},
        {llama, R"({"is_encoder_decoder":true})", {"is_encoder_decoder is true"}},
        {llama, R"({"hidden_act":"mish"})", {"hidden_act is 'mish'", "silu"}},
        {llama,
         R"({"rope_scaling":{"rope_type":"yarn","factor":4.0}})",
         {"rope_scaling.rope_type is 'yarn'", "linear, llama3"}},
        {llama, R"({"rope_scaling":{"type":"dynamic","factor":4.0}})", {"rope_scaling.type is 'dynamic'"}},
        {llama, R"({"rope_scaling":{"rope_type":"default","mrope_section":[1]}})", {"rope_scaling.mrope_section"}},
        {llama, R"({"partial_rotary_factor":0.5})", {"partial_rotary_factor"}},
        {llama,
         R"({"rope_scaling":null,"rope_parameters":{"partial_rotary_factor":0.5}})",
         {"rope_parameters.partial_rotary_factor"}},
        {llama, R"({"head_dim":127})", {"head_dim is 127", "even"}},
        {llama, R"({"num_attention_heads":8,"num_key_value_heads":8})", {"num_attention_heads", "512"}},
        {mistral, R"({"layer_types":["full_attention","sliding_attention","full_attention"]})", {"layer_types"}},
        {qwen3,
         R"({"layer_types":["full_attention","chunked_attention","full_attention"]})",
         {"layer_types holds 'chunked_attention'", "full_attention, sliding_attention"}},
        {gemma, R"({"use_bidirectional_attention":true})", {"use_bidirectional_attention is true"}},
        {gemma3, R"({"attn_logit_softcapping":50.0})", {"attn_logit_softcapping", "null"}},
        {gpt2, R"({"add_cross_attention":true})", {"add_cross_attention is true"}},
        {gpt2, R"({"activation_function":"gelu_10"})", {"activation_function is 'gelu_10'"}},
    };
    for (const auto &each : all) {
        EXPECT_TRUE(throws(
            HALYARD_UNSUPPORTED, [&] { parse(each.base, each.change); }, "config.json: ", each.words[0],
            each.words[1] != nullptr ? each.words[1] : ""))
            << each.change;
    }
}

// ---- quantization_config ----

constexpr const char *gptq = R"({"quant_method":"gptq","bits":4,"group_size":128})";
constexpr const char *awq = R"({"quant_method":"awq","bits":4,"group_size":128,"zero_point":true,"version":"gemm"})";
constexpr const char *packed =
    R"({"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{"group_0":
    {"targets":["Linear"],"weights":{"num_bits":4,"type":"int","strategy":"group","group_size":128}}}})";

/** A configuration with a changed quantization_config. */
std::string quantized(const char *base, const std::string &change) {
    json config = json::parse(base);
    config.merge_patch(json::parse(change));
    return json{{"quantization_config", config}}.dump();
}
/** Change to the only group of modules of compressed-tensors. */
std::string in_group(const std::string &change) {
    return R"({"config_groups":{"group_0":)" + change + "}}";
}

TEST(ModelConfig, MayBeOfAQuantizedModel) {
    for (const std::string &change :
         {quantized(gptq, R"({"bits":8,"group_size":-1,"desc_act":true,"sym":false,"checkpoint_format":"gptq_v2"})"),
          quantized(gptq, R"({"checkpoint_format":null,"dynamic":{},"is_marlin_format":false,"pack_dtype":"int32"})"),
          quantized(awq, R"({"version":"GEMM","backend":"autoawq","modules_to_not_convert":["lm_head"]})"),
          std::string(R"({"quantization_config":{"quant_method":"awq","w_bit":4,"q_group_size":64}})"),
          quantized(packed, R"({"format":"int-quantized","sparsity_config":{"format":"dense"},"transform_config":{}})"),
          quantized(packed, in_group(R"({"weights":{"strategy":"channel","group_size":null,"num_bits":8}})")),
          quantized(packed, in_group(R"({"weights":{"actorder":"static","symmetric":false,"dynamic":false}})")),
          quantized(packed, in_group(R"({"weights":{"actorder":false},"format":"pack-quantized"})"))}) {
        EXPECT_EQ(parse(llama, change).stack.vocab_size, parse(llama, "{}").stack.vocab_size) << change;
    }
}

TEST(ModelConfigRefuses, WhatItCannotComputeOfAQuantizedModel) {
    const struct {
        std::string change;
        const char *words[2];
        const char *model = llama;
    } all[] = {
        {quantized(gptq, R"({"quant_method":"bitsandbytes"})"),
         {".quant_method is 'bitsandbytes'", "awq, compressed-"}},
        {quantized(gptq, R"({"quant_method":"fp8"})"), {"quantization_config.quant_method is 'fp8'", "gptq"}},
        {quantized(gptq, "{}"), {"quantization_config", "GPT2LMHeadModel has matrices [in, out]"}, gpt2},
        {quantized(gptq, R"({"bits":3})"), {"quantization_config.bits is 3", "4 and 8"}},
        {quantized(gptq, R"({"group_size":24})"), {"quantization_config.group_size is 24", "multiples of 16"}},
        {quantized(gptq, R"({"group_size":0})"), {"quantization_config.group_size is 0", "-1"}},
        {quantized(gptq, R"({"checkpoint_format":"marlin"})"), {".checkpoint_format is 'marlin'", "gptq, gptq_v2"}},
        {quantized(gptq, R"({"is_marlin_format":true})"), {"quantization_config.is_marlin_format is true"}},
        {quantized(gptq, R"({"dynamic":{"-:.*down":{}}})"), {"quantization_config.dynamic is an object"}},
        {quantized(gptq, R"({"pack_dtype":"int16"})"), {"quantization_config.pack_dtype is 'int16'"}},
        {quantized(awq, R"({"bits":8})"), {"quantization_config.bits is 8; supported is 4"}},
        {quantized(awq, R"({"version":"gemv"})"), {"quantization_config.version is 'gemv'", "gemm"}},
        {quantized(awq, R"({"backend":"llm-awq"})"), {"quantization_config.backend is 'llm-awq'"}},
        {quantized(awq, R"({"zero_point":false})"), {"quantization_config.zero_point is false"}},
        {quantized(packed, R"({"format":"float-quantized"})"), {".format is 'float-quantized'", "int-quantized"}},
        {quantized(packed, R"({"kv_cache_scheme":{"num_bits":8}})"), {"quantization_config.kv_cache_scheme is"}},
        {quantized(packed, R"({"sparsity_config":{"format":"sparse-bitmask"}})"), {"sparsity_config.format is"}},
        {quantized(packed, R"({"transform_config":{"config_groups":{}}})"),
         {"quantization_config.transform_config is"}},
        {quantized(packed, R"({"config_groups":{"group_1":{}}})"), {".config_groups holds 2 groups; supported is one"}},
        {quantized(packed, in_group(R"({"format":"int-quantized"})")), {"group_0.format is 'int-quantized'"}},
        {quantized(packed, in_group(R"({"input_activations":{"num_bits":8}})")),
         {"quantization_config.config_groups.group_0.input_activations is an object; supported is none"}},
        {quantized(packed, in_group(R"({"output_activations":{"num_bits":8}})")), {"group_0.output_activations is"}},
        {quantized(packed, in_group(R"({"weights":{"type":"float"}})")), {"group_0.weights.type is 'float'"}},
        {quantized(packed, in_group(R"({"weights":{"num_bits":2}})")), {"group_0.weights.num_bits is 2"}},
        {quantized(packed, in_group(R"({"weights":{"strategy":"tensor"}})")), {"weights.strategy is 'tensor'"}},
        {quantized(packed, in_group(R"({"weights":{"dynamic":true}})")), {"weights.dynamic is true"}},
        {quantized(packed, in_group(R"({"weights":{"actorder":"x"}})")), {"weights.actorder is 'x'"}},
    };
    for (const auto &each : all) {
        EXPECT_TRUE(throws(
            HALYARD_UNSUPPORTED, [&] { parse(each.model, each.change); }, "config.json: ", each.words[0],
            each.words[1] != nullptr ? each.words[1] : ""))
            << each.change;
    }
}

TEST(ModelConfigRefuses, WhatIsWrong) {
    const struct {
        const char *base;
        std::string change;
        const char *words;
    } all[] = {
        {llama, R"({"architectures":"absent"})", "architectures is missing"},
        {llama, R"({"architectures":[]})", "architectures is not an array of one name"},
        {llama, R"({"architectures":["LlamaForCausalLM","GemmaForCausalLM"]})",
         "architectures is not an array of one name"},
        {llama, R"({"architectures":"LlamaForCausalLM"})", "architectures is not an array of one name"},
        {llama, R"({"hidden_size":"4096"})", "hidden_size is '4096' instead of an integer"},
        {llama, R"({"hidden_size":4096.0})", "hidden_size is 4096.0 instead of an integer"},
        {llama, R"({"hidden_size":[4096]})", "hidden_size is an array instead of an integer"},
        {llama, R"({"hidden_size":0})", "hidden_size is 0; supported are 1 to"},
        {llama, R"({"hidden_size":-1})", "hidden_size is -1; supported are 1 to"},
        {llama, R"({"hidden_size":4294967296})", "hidden_size is 4294967296; supported are 1 to"},
        {llama, R"({"hidden_size":18446744073709551615})", "hidden_size is 18446744073709551615; supported are 1 to"},
        {llama, R"({"num_hidden_layers":1000000000})", "num_hidden_layers is 1000000000; supported are 1 to 10000"},
        {llama, R"({"num_key_value_heads":5})",
         "num_key_value_heads is 5, which does not divide num_attention_heads 32"},
        {llama, R"({"num_key_value_heads":64})", "num_key_value_heads is 64; supported are 1 to 32"},
        {llama, R"({"num_attention_heads":30,"num_key_value_heads":10})",
         "num_attention_heads is 30, which does not divide"},
        {llama, R"({"head_dim":512})", "head_dim is 512; supported are 1 to 256"},
        {llama, R"({"rms_norm_eps":"small"})", "rms_norm_eps is 'small' instead of a number"},
        {llama, R"({"rms_norm_eps":-1})", "rms_norm_eps is -1; supported are 0 to 1"},
        {llama, R"({"tie_word_embeddings":1})", "tie_word_embeddings is 1 instead of true or false"},
        {llama, R"({"hidden_act":1})", "hidden_act is 1 instead of a string"},
        {llama, R"({"rope_theta":1})", "rope_theta is 1; supported are"},
        {llama, R"({"rope_theta":"10000"})", "rope_theta is '10000' instead of a number"},
        {llama, R"({"rope_scaling":"linear"})", "rope_scaling is 'linear' instead of an object"},
        {llama, R"({"rope_scaling":{"type":"linear"}})", "rope_scaling.factor is missing"},
        {llama, R"({"rope_scaling":{"type":"linear","factor":0.5}})", "rope_scaling.factor is 0.5; supported are 1 to"},
        {llama, R"({"rope_scaling":{"type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4}})",
         "rope_scaling.high_freq_factor is not above low_freq_factor"},
        {llama, R"({"rope_scaling":{"type":"llama3","factor":8,"low_freq_factor":4}})",
         "rope_scaling.high_freq_factor is missing"},
        {llama, R"({"rope_parameters":{}})", "rope_parameters and rope_scaling are both given"},
        {llama, R"({"eos_token_id":"end"})", "eos_token_id holds 'end' instead of a token"},
        {llama, R"({"eos_token_id":[1,-1]})", "eos_token_id holds -1 instead of a token"},
        {mistral, R"({"num_key_value_heads":null})", "num_key_value_heads is null instead of an integer"},
        {qwen3, R"({"head_dim":null})", "head_dim is null instead of an integer"},
        {qwen3, R"({"use_sliding_window":null})", "use_sliding_window is null instead of true or false"},
        {llama, R"({"hidden_act":null})", "hidden_act is null instead of a string"},
        {llama, R"({"quantization_config":[]})", "quantization_config is an array instead of an object"},
        {llama, R"({"quantization_config":{}})", "quantization_config.quant_method is missing"},
        {llama, quantized(gptq, R"({"bits":"4"})"), "quantization_config.bits is '4' instead of an integer"},
        {llama, quantized(gptq, R"({"bits":null})"), "quantization_config.bits is missing"},
        {llama, quantized(gptq, R"({"sym":1})"), "quantization_config.sym is 1 instead of true or false"},
        {llama, quantized(gptq, R"({"group_size":-2})"), "quantization_config.group_size is -2; supported are -1 to"},
        {llama, quantized(packed, R"({"format":null})"), "quantization_config.format is missing"},
        {llama, quantized(packed, R"({"config_groups":null})"), "quantization_config.config_groups is missing"},
        {llama, quantized(packed, R"({"config_groups":{"group_0":1}})"),
         "quantization_config.config_groups.group_0 is 1 instead of an object"},
        {llama, quantized(packed, in_group(R"({"weights":null})")), "config_groups.group_0.weights is missing"},
        {llama, quantized(packed, in_group(R"({"weights":{"group_size":null}})")), "weights.group_size is missing"},
        {llama, R"({"rms_norm_eps":null})", "rms_norm_eps is null instead of a number"},
        {gpt2, R"({"hidden_size":767})", "n_head is 12, which does not divide hidden_size 767"},
        {mistral, R"({"sliding_window":0})", "sliding_window is 0; supported are 1 to"},
        {qwen2, R"({"layer_types":["full_attention"]})", "layer_types is not an array of num_hidden_layers names"},
        {qwen2, R"({"layer_types":["full_attention","sliding_attention","full_attention"]})",
         "layer_types has sliding_attention, and use_sliding_window is false"},
        {gemma2, R"({"query_pre_attn_scalar":0})", "query_pre_attn_scalar is 0; supported are"},
        {gemma2, R"({"final_logit_softcapping":-30})", "final_logit_softcapping is -30; supported are"},
        {gemma2, R"({"sliding_window":null})", "sliding_window is null instead of an integer"},
        {gemma3, R"({"sliding_window_pattern":0})", "sliding_window_pattern is 0; supported are 1 to"},
        {gemma3, R"({"rope_parameters":{"rope_type":"default"}})", "rope_parameters has neither full_attention nor"},
        {gemma3, R"({"rope_parameters":{"full_attention":1}})",
         "rope_parameters.full_attention is 1 instead of an object"},
        {gemma3, R"({"rope_parameters":{"full_attention":{"rope_theta":-1}}})",
         "rope_parameters.full_attention.rope_theta is -1; supported are"},
        {gpt2, R"({"n_head":7})", "n_head is 7, which does not divide n_embd 768"},
        {gpt2, R"({"n_positions":16777217})", "n_positions is 16777217; supported are 1 to 16777216"},
    };
    for (const auto &each : all) {
        EXPECT_TRUE(throws(
            HALYARD_INVALID_ARGUMENT, [&] { parse(each.base, each.change); }, "config.json: ", each.words))
            << each.change;
    }
}

TEST(ModelConfigRefuses, WhatIsNoObject) {
    for (const std::string text : {"", "[]", "1", "{", "{\"a\":1,}", "{\"a\":1e999}", "nonsense"}) {
        EXPECT_TRUE(throws(
            HALYARD_INVALID_ARGUMENT, [&] { ModelConfig::parse(text); }, "config.json "))
            << text;
    }
    EXPECT_TRUE(throws(
        HALYARD_INVALID_ARGUMENT, [&] { ModelConfig::parse(R"({"a":1,"a":2})"); }, "two fields named 'a'"));
    EXPECT_TRUE(throws(
        HALYARD_INVALID_ARGUMENT, [&] { ModelConfig::parse(std::string(1'000'000, '[')); }, "nested deeper"));
    EXPECT_TRUE(throws(
        HALYARD_INVALID_ARGUMENT, [&] { ModelConfig::load("/nonexistent/config.json"); },
        "/nonexistent/config.json cannot be opened"));
}

/** What a configuration must be, whatever it was made from. */
void expect_consistent(const ModelConfig &config) {
    ASSERT_NE(to_string(config.architecture), nullptr);
    ASSERT_GE(config.blocks.size(), 1u);
    ASSERT_GE(config.stack.vocab_size, 1);
    for (const BlockConfig &block : config.blocks) {
        ASSERT_EQ(block.hidden_size, config.stack.hidden_size);
        ASSERT_GE(block.head_dim, 1);
        ASSERT_LE(block.head_dim, 256);
        ASSERT_EQ(block.num_attention_heads % block.num_key_value_heads, 0);
        ASSERT_GE(block.intermediate_size, 1);
        ASSERT_GE(block.sliding_window, 0);
        ASSERT_GT(block.query_pre_attn_scalar, 0);
        ASSERT_TRUE(block.rope.rope_theta == 0 || block.rope.rope_theta > 1);
    }
}

// Thousands of small changes of each file.
TEST(ModelConfigMutations, NeverCrashAndAreAcceptedOnlyIfConsistent) {
    const std::string tokens[] = {"[", "]", "{", "}", ",",    ":",    "\"", "0",
                                  "9", "-", ".", "e", "null", "true", "1",  "999999"};
    std::mt19937_64 random(2027);
    int accepted = 0;
    constexpr int count = 20000;
    for (int i = 0; i < count; i++) {
        std::string text = all_models[random() % std::size(all_models)];
        for (std::uint64_t changes = 1 + random() % 3; changes > 0; changes--) {
            const std::size_t at = random() % text.size();
            switch (random() % 4) {
            case 0:
                text[at] = static_cast<char>(text[at] ^ (1 << random() % 8));
                break;
            case 1:
                text.insert(at, tokens[random() % std::size(tokens)]);
                break;
            case 2:
                text.erase(at, 1 + random() % 4);
                break;
            default:
                text.replace(at, 1, tokens[random() % std::size(tokens)]);
            }
        }
        try {
            const ModelConfig config = ModelConfig::parse(text);
            accepted++;
            ASSERT_NO_FATAL_FAILURE(expect_consistent(config)) << text;
        } catch (const Error &error) {
            ASSERT_EQ(std::string(error.what()).rfind("config.json", 0), 0u) << error.what();
        }
    }
    EXPECT_GT(accepted, count / 20);
    EXPECT_LT(accepted, count / 2);
}

}  // namespace
}  // namespace halyard::tests
