#include "gguf_metadata.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "fail.h"
#include "gguf_config.h"
#include "names.h"

namespace halyard::models {

namespace {

/// Sets keys of the architecture.
class Keys {
public:
    Keys(GgufMetadata &metadata, std::string architecture)
        : metadata_(metadata), architecture_(std::move(architecture)) {}

    void count(const char *key, std::int64_t value) {
        metadata_.set(architecture_ + "." + key, static_cast<std::uint32_t>(value));
    }
    void number(const char *key, double value) { metadata_.set(architecture_ + "." + key, static_cast<float>(value)); }
    void text(const char *key, const std::string &value) { metadata_.set(architecture_ + "." + key, value); }

private:
    GgufMetadata &metadata_;
    const std::string architecture_;
};

void set_rotation(Keys &keys, const ModelConfig &config) {
    // Layers with a window may have a rotation of their own, which is not scaled.
    const auto full = std::find_if(config.blocks.begin(), config.blocks.end(),
                                   [](const BlockConfig &block) { return block.sliding_window == 0; });
    const RopeOptions &rope = (full != config.blocks.end() ? *full : config.blocks.front()).rope;
    keys.number("rope.freq_base", rope.rope_theta);
    if (rope.scaling == RopeScaling::linear) {
        keys.text("rope.scaling.type", "linear");
        keys.number("rope.scaling.factor", rope.factor);
    } else if (rope.scaling == RopeScaling::llama3) {
        keys.count("rope.scaling.original_context_length", rope.original_max_position_embeddings);
    }
}

void set_windows(Keys &keys, const ModelConfig &config) {
    const auto &blocks = config.blocks;
    const auto sliding =
        std::find_if(blocks.begin(), blocks.end(), [](const BlockConfig &block) { return block.sliding_window != 0; });
    const bool has_key = is_llama(config.architecture) || config.architecture == Architecture::gemma2 ||
                         config.architecture == Architecture::gemma3;
    if (sliding == blocks.end() || !has_key) {
        return;
    }
    keys.count("attention.sliding_window", sliding->sliding_window);
    if (config.architecture == Architecture::gemma3) {
        const auto full = std::find_if(blocks.begin(), blocks.end(),
                                       [](const BlockConfig &block) { return block.sliding_window == 0; });
        keys.count("attention.sliding_window_pattern", full - blocks.begin() + 1);
        keys.number("rope.freq_base_swa", sliding->rope.rope_theta);
    }
}

void set_tokens(GgufMetadata &metadata, const ModelConfig &config) {
    metadata.set("tokenizer.ggml.model", std::string("none"));  // of the text; ids have their meaning without it
    const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"};
    for (std::size_t i = 0; i < std::min(std::size(keys), config.eos_token_ids.size()); i++) {
        metadata.set(keys[i], static_cast<std::uint32_t>(config.eos_token_ids[i]));
    }
}

/// What two configurations differ in; null if in nothing that changes a result.
const char *difference(const BlockConfig &a, const BlockConfig &b) {
    const auto differ = [](double x, double y) { return static_cast<float>(x) != static_cast<float>(y); };
    return a.hidden_act != b.hidden_act                                                 ? "an activation"
           : a.sliding_window != b.sliding_window                                       ? "a sliding window"
           : differ(a.query_pre_attn_scalar, b.query_pre_attn_scalar)                   ? "a scale of the scores"
           : differ(a.attn_logit_softcapping, b.attn_logit_softcapping)                 ? "a soft cap of the scores"
           : differ(a.rms_norm_eps, b.rms_norm_eps)                                     ? "an epsilon of the norms"
           : a.head_dim != b.head_dim || a.num_key_value_heads != b.num_key_value_heads ? "heads"
           : differ(a.rope.rope_theta, b.rope.rope_theta) || a.rope.scaling != b.rope.scaling ||
                   (a.rope.scaling != RopeScaling::none && differ(a.rope.factor, b.rope.factor)) ||
                   (a.rope.scaling == RopeScaling::llama3 &&
                    (a.rope.original_max_position_embeddings != b.rope.original_max_position_embeddings ||
                     differ(a.rope.low_freq_factor, b.rope.low_freq_factor) ||
                     differ(a.rope.high_freq_factor, b.rope.high_freq_factor)))
               ? "a rotation"
               : nullptr;
}

}  // namespace

GgufMetadata metadata_of(const ModelConfig &config, const std::filesystem::path &path) {
    const char *const architecture = name_in_gguf(config.architecture);
    if (architecture == nullptr) {
        unsupported(path, "is ", to_string(config.architecture), ", which cannot be written as GGUF; supported are ",
                    architectures_in_gguf());
    }
    const BlockConfig &block = config.blocks.front();
    GgufMetadata metadata;
    metadata.set("general.architecture", std::string(architecture));
    Keys keys(metadata, architecture);
    keys.count("context_length", config.max_position_embeddings);
    keys.count("embedding_length", block.hidden_size);
    keys.count("block_count", static_cast<std::int64_t>(config.blocks.size()));
    keys.count("feed_forward_length", block.intermediate_size);
    keys.count("attention.head_count", block.num_attention_heads);
    keys.count("attention.head_count_kv", block.num_key_value_heads);
    keys.count("vocab_size", config.stack.vocab_size);
    if (block.norm == Norm::layer) {
        keys.number("attention.layer_norm_epsilon", block.rms_norm_eps);
    } else {
        keys.count("attention.key_length", block.head_dim);
        keys.count("attention.value_length", block.head_dim);
        keys.count("rope.dimension_count", block.head_dim);
        keys.number("attention.layer_norm_rms_epsilon", block.rms_norm_eps);
        set_rotation(keys, config);
        set_windows(keys, config);
    }
    if (block.attn_logit_softcapping != 0) {
        keys.number("attn_logit_softcapping", block.attn_logit_softcapping);
    }
    if (config.stack.final_logit_softcapping != 0) {
        keys.number("final_logit_softcapping", config.stack.final_logit_softcapping);
    }
    set_tokens(metadata, config);
    return metadata;
}

std::vector<float> rope_factors_of(const ModelConfig &config) {
    const RopeOptions &rope = config.blocks.front().rope;
    std::vector<float> factors;
    if (rope.scaling != RopeScaling::llama3) {
        return factors;
    }
    for (std::int64_t i = 0; i < config.blocks.front().head_dim / 2; i++) {
        factors.push_back(static_cast<float>(llama3_factor(rope, i, config.blocks.front().head_dim / 2)));
    }
    return factors;
}

void check_expressed(const ModelConfig &config, const ModelConfig &read, const std::filesystem::path &path,
                     const char *where) {
    const char *what = config.stack.final_logit_softcapping != read.stack.final_logit_softcapping
                           ? "a soft cap of the logits"
                           : nullptr;
    for (std::size_t layer = 0; layer < config.blocks.size() && what == nullptr; layer++) {
        what = difference(config.blocks[layer], read.blocks[layer]);
    }
    if (what != nullptr) {
        unsupported(path, "has ", what, " that ", where, " cannot express for ", to_string(config.architecture));
    }
}

}  // namespace halyard::models
