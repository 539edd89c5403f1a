#include "config_json.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "config.h"
#include "gguf_metadata.h"

namespace halyard::models {

namespace {

/// What transformers calls a family, and the activation of all its files.
struct FamilyNames {
    Architecture architecture;
    const char *type, *activation;
};
constexpr FamilyNames family_names[] = {
    {Architecture::gpt2, "gpt2", "gelu_new"},
    {Architecture::llama, "llama", "silu"},
    {Architecture::mistral, "mistral", "silu"},
    {Architecture::qwen2, "qwen2", "silu"},
    {Architecture::qwen3, "qwen3", "silu"},
    {Architecture::gemma, "gemma", "gelu_pytorch_tanh"},
    {Architecture::gemma2, "gemma2", "gelu_pytorch_tanh"},
    {Architecture::gemma3, "gemma3_text", "gelu_pytorch_tanh"},
    {Architecture::bert, "bert", "gelu"},
};

Json count(std::int64_t value) {
    return {static_cast<std::uint64_t>(value)};
}
Json text(const char *value) {
    return {std::string(value)};
}
/// An integer where it is one: transformers takes nothing else there.
Json scalar(float value) {
    const auto whole = static_cast<std::int64_t>(value);
    if (static_cast<float>(whole) == value) {
        return count(whole);
    }
    return real_json(value);
}
Json cap(float value) {
    if (value == 0) {
        return {};
    }
    return real_json(value);
}

/// One number, several, or null.
Json end_tokens_json(const std::vector<std::int64_t> &tokens) {
    Json::Array all;
    std::transform(tokens.begin(), tokens.end(), std::back_inserter(all), count);
    if (all.empty()) {
        return {};
    }
    if (all.size() == 1) {
        return all.front();
    }
    return {std::move(all)};
}

Json scaling_json(const RopeOptions &rope) {
    if (rope.scaling == RopeScaling::none) {
        return {};
    }
    Json::Object scaling{{"factor", real_json(rope.factor)}};
    if (rope.scaling == RopeScaling::linear) {
        scaling["rope_type"] = text("linear");
    } else {
        scaling["rope_type"] = text("llama3");
        scaling["low_freq_factor"] = real_json(rope.low_freq_factor);
        scaling["high_freq_factor"] = real_json(rope.high_freq_factor);
        scaling["original_max_position_embeddings"] = count(rope.original_max_position_embeddings);
    }
    return {std::move(scaling)};
}

Json::Object gpt2_fields(const ModelConfig &config) {
    const BlockConfig &block = config.blocks.front();
    return {{"n_positions", count(config.max_position_embeddings)},
            {"n_embd", count(block.hidden_size)},
            {"n_layer", count(static_cast<std::int64_t>(config.blocks.size()))},
            {"n_head", count(block.num_attention_heads)},
            {"n_inner", count(block.intermediate_size)},
            {"layer_norm_epsilon", real_json(block.rms_norm_eps)}};
}

/// Layers with a window and without one.
Json::Object window_fields(const ModelConfig &config, const BlockConfig *sliding) {
    Json::Object fields{{"sliding_window", {}}};
    if (sliding != nullptr) {
        fields["sliding_window"] = count(sliding->sliding_window);
    }
    const bool is_gemma3 = config.architecture == Architecture::gemma3;
    if (config.architecture == Architecture::gemma2 || is_gemma3) {
        Json::Array types;
        for (const BlockConfig &block : config.blocks) {
            types.push_back(text(block.sliding_window != 0 ? "sliding_attention" : "full_attention"));
        }
        fields["layer_types"] = {std::move(types)};
    }
    if (is_gemma3 && sliding != nullptr) {
        fields["rope_local_base_freq"] = real_json(sliding->rope.rope_theta);
    }
    return fields;
}

Json::Object llama_fields(const ModelConfig &config) {
    const BlockConfig &block = config.blocks.front();
    const auto find = [&](bool is_sliding) {
        const auto at = std::find_if(config.blocks.begin(), config.blocks.end(),
                                     [&](const BlockConfig &each) { return (each.sliding_window != 0) == is_sliding; });
        return at != config.blocks.end() ? &*at : nullptr;
    };
    const BlockConfig *const full = find(false), *const sliding = find(true);
    const RopeOptions &rope = (full != nullptr ? *full : block).rope;
    Json::Object fields{{"hidden_size", count(block.hidden_size)},
                        {"intermediate_size", count(block.intermediate_size)},
                        {"num_hidden_layers", count(static_cast<std::int64_t>(config.blocks.size()))},
                        {"num_attention_heads", count(block.num_attention_heads)},
                        {"num_key_value_heads", count(block.num_key_value_heads)},
                        {"head_dim", count(block.head_dim)},
                        {"max_position_embeddings", count(config.max_position_embeddings)},
                        {"rms_norm_eps", real_json(block.rms_norm_eps)},
                        {"rope_theta", real_json(rope.rope_theta)},
                        {"rope_scaling", scaling_json(rope)}};
    using A = Architecture;
    if (config.architecture != A::mistral && config.architecture != A::qwen2) {
        fields["attention_bias"] = {config.qkv_bias};
    }
    if (config.architecture == A::llama) {
        fields["mlp_bias"] = {config.mlp_bias};
    }
    if (config.architecture == A::gemma2 || config.architecture == A::gemma3) {
        fields["query_pre_attn_scalar"] = scalar(block.query_pre_attn_scalar);
        fields["attn_logit_softcapping"] = cap(block.attn_logit_softcapping);
        fields["final_logit_softcapping"] = cap(config.stack.final_logit_softcapping);
    }
    if (config.architecture != A::llama && config.architecture != A::gemma) {
        fields.merge(window_fields(config, sliding));
    }
    return fields;
}

}  // namespace

Json::Object config_json(const ModelConfig &config, const std::filesystem::path &path) {
    const bool is_gpt2 = config.architecture == Architecture::gpt2;
    const auto *const names =
        std::find_if(std::begin(family_names), std::end(family_names),
                     [&](const FamilyNames &each) { return each.architecture == config.architecture; });
    Json::Object fields = is_gpt2 ? gpt2_fields(config) : llama_fields(config);
    fields["architectures"] = {Json::Array{text(to_string(config.architecture))}};
    fields["model_type"] = text(names->type);
    fields["vocab_size"] = count(config.stack.vocab_size);
    fields["tie_word_embeddings"] = {config.tie_word_embeddings};
    fields["eos_token_id"] = end_tokens_json(config.eos_token_ids);
    for (const char *const name : {"activation_function", "hidden_act", "hidden_activation"}) {
        const bool is_own = is_gpt2 == (std::string_view(name) == "activation_function");
        if (is_own) {
            fields[name] = text(names->activation);
        }
    }
    check_expressed(config, parse_config(json_text(fields), path.string()).model, path, "config.json");
    return fields;
}

}  // namespace halyard::models
