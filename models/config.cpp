// config.json of Hugging Face transformers, translated into configurations of blocks and of the stack. What a field
// means where it is absent or null follows transformers 5; what this library cannot compute is refused, never passed
// over.
#include <algorithm>
#include <cmath>
#include <utility>

#include "config.h"
#include "fail.h"
#include "floating_point.h"
#include "gguf_config.h"
#include "mapped_file.h"
#include "names.h"

namespace halyard {

using models::Fields;
using models::in_quotes;
using models::Json;

namespace {

constexpr std::int64_t max_size = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t max_layers = 10000;
constexpr std::int64_t max_heads = 65536;
constexpr std::int64_t max_head_dim = 256;
constexpr std::int64_t max_positions = std::int64_t{1} << 24;  // of a table of rotations
constexpr double max_number = 1e30;                            // leaves f32 room for arithmetic

constexpr std::pair<const char *, Architecture> architectures[] = {
    {"GPT2LMHeadModel", Architecture::gpt2},
    {"LlamaForCausalLM", Architecture::llama},
    {"MistralForCausalLM", Architecture::mistral},
    {"Qwen2ForCausalLM", Architecture::qwen2},
    {"Qwen3ForCausalLM", Architecture::qwen3},
    {"GemmaForCausalLM", Architecture::gemma},
    {"Gemma2ForCausalLM", Architecture::gemma2},
    {"Gemma3ForCausalLM", Architecture::gemma3},
    {"BertModel", Architecture::bert},
    {"BertForMaskedLM", Architecture::bert},
    {"BertForPreTraining", Architecture::bert},
};

/// What transformers takes for fields that are absent.
constexpr std::pair<Architecture, const char *> defaults[] = {
    {Architecture::gpt2, R"({"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12,
        "n_inner": null, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "scale_attn_weights": true,
        "scale_attn_by_inverse_layer_idx": false, "tie_word_embeddings": true, "eos_token_id": 50256})"},
    {Architecture::llama, R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": null, "head_dim": null,
        "hidden_act": "silu", "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_theta": 10000,
        "attention_bias": false, "mlp_bias": false, "tie_word_embeddings": false, "eos_token_id": 2})"},
    {Architecture::mistral, R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": null,
        "hidden_act": "silu", "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "rope_theta": 10000,
        "sliding_window": 4096, "tie_word_embeddings": false, "eos_token_id": 2})"},
    {Architecture::qwen2, R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": null,
        "hidden_act": "silu", "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 10000,
        "use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 28, "tie_word_embeddings": false})"},
    {Architecture::qwen3, R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128,
        "hidden_act": "silu", "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 10000,
        "attention_bias": false, "use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 28,
        "tie_word_embeddings": false})"},
    {Architecture::gemma, R"({"vocab_size": 256000, "hidden_size": 3072, "intermediate_size": 24576,
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256,
        "hidden_act": "gelu_pytorch_tanh", "max_position_embeddings": 8192, "rms_norm_eps": 1e-6,
        "rope_theta": 10000, "attention_bias": false, "tie_word_embeddings": true, "eos_token_id": 1})"},
    {Architecture::gemma2, R"({"vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216,
        "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 8192, "rms_norm_eps": 1e-6,
        "rope_theta": 10000, "attention_bias": false, "query_pre_attn_scalar": 256, "sliding_window": 4096,
        "attn_logit_softcapping": 50, "final_logit_softcapping": 30, "tie_word_embeddings": true,
        "eos_token_id": 1})"},
    {Architecture::gemma3, R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
        "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
        "rope_theta": 1000000, "rope_local_base_freq": 10000, "attention_bias": false, "query_pre_attn_scalar": 256,
        "sliding_window": 4096, "sliding_window_pattern": 6, "attn_logit_softcapping": null,
        "final_logit_softcapping": null, "tie_word_embeddings": true, "eos_token_id": 1})"},
    {Architecture::bert,
     R"({"vocab_size": 30522, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2,
        "layer_norm_eps": 1e-12, "tie_word_embeddings": true})"},
};

constexpr std::pair<const char *, Activation> activations[] = {
    {"gelu", Activation::gelu},
    {"gelu_python", Activation::gelu},
    {"gelu_new", Activation::gelu_tanh},
    {"gelu_fast", Activation::gelu_tanh},
    {"gelu_pytorch_tanh", Activation::gelu_tanh},
    {"quick_gelu", Activation::gelu_sigmoid},
    {"silu", Activation::silu},
    {"swish", Activation::silu},
    {"relu", Activation::relu},
    {"relu2", Activation::relu2},
    {"sigmoid", Activation::sigmoid},
    {"tanh", Activation::tanh},
    {"linear", Activation::identity},
};

/// "a, b, c" of the names of a table.
template<class Table>
std::string names_of(const Table &table) {
    std::string names;
    for (const auto &[name, value] : table) {
        names += (names.empty() ? "" : ", ") + std::string(name);
    }
    return names;
}

Architecture architecture_of(const Fields &fields) {
    const Json *const names = fields.find("architectures");
    if (names == nullptr) {
        fields.refuse("architectures", "is missing; supported are ", names_of(architectures));
    }
    const auto *const list = names->as<Json::Array>();
    const auto *const name = list != nullptr && list->size() == 1 ? list->front().as<std::string>() : nullptr;
    if (name == nullptr) {
        fields.refuse("architectures", "is not an array of one name");
    }
    for (const auto &[known, architecture] : architectures) {
        if (*name == known) {
            return architecture;
        }
    }
    fields.unsupported("architectures", "holds ", in_quotes(*name), "; supported are ", names_of(architectures));
}

Activation activation_of(const Fields &fields, const char *field) {
    const std::string name = fields.text(field);
    for (const auto &[known, activation] : activations) {
        if (name == known) {
            return activation;
        }
    }
    fields.unsupported(field, "is ", in_quotes(name), "; supported are ", names_of(activations));
}

/// A field that may only be false.
void no(const Fields &fields, const char *name) {
    if (fields.has(name) && fields.flag(name)) {
        fields.unsupported(name, "is true; supported is false");
    }
}

// ---- Rotary embedding ----

double theta_of(const Fields &fields, const char *name, std::optional<double> fallback = std::nullopt) {
    return fields.number(name, 1.0 + 1e-6, max_number, fallback);
}

/// `parameters`: the object with the kind of scaling, or null for none.
RopeOptions rope_of(const Fields &fields, const Fields *parameters, double theta) {
    RopeOptions rope;
    rope.rope_theta = theta;
    const auto only_whole_heads = [](const Fields &within) {
        if (within.has("partial_rotary_factor") && within.number("partial_rotary_factor", 0, 1) != 1) {
            within.unsupported("partial_rotary_factor", "is below 1; supported is 1");
        }
    };
    only_whole_heads(fields);
    if (parameters == nullptr) {
        return rope;
    }
    only_whole_heads(*parameters);
    rope.rope_theta = theta_of(*parameters, "rope_theta", theta);
    const char *const field = parameters->has("rope_type") ? "rope_type" : "type";
    const std::string type = parameters->text(field, "default");
    if (type == "linear") {
        rope.scaling = RopeScaling::linear;
        rope.factor = parameters->number("factor", 1, models::most_rope_factor);
    } else if (type == "llama3") {
        rope.scaling = RopeScaling::llama3;
        rope.factor = parameters->number("factor", 1, models::most_rope_factor);
        rope.low_freq_factor = parameters->number("low_freq_factor", 1e-6, models::most_rope_factor);
        rope.high_freq_factor = parameters->number("high_freq_factor", 1e-6, models::most_rope_factor);
        if (rope.high_freq_factor <= rope.low_freq_factor) {
            parameters->refuse("high_freq_factor", "is not above low_freq_factor");
        }
        const char *const original = "original_max_position_embeddings";
        const std::int64_t positions = fields.integer("max_position_embeddings", 1, max_positions);
        rope.original_max_position_embeddings = parameters->integer(original, 1, max_positions, positions);
    } else if (type != "default") {
        parameters->unsupported(field, "is ", in_quotes(type), "; supported are default, linear, llama3");
    }
    if (parameters->has("mrope_section")) {
        parameters->unsupported("mrope_section", "is not supported");
    }
    return rope;
}

/// The rotation of all layers: rope_theta with rope_scaling, or both in rope_parameters.
RopeOptions rope_of(const Fields &fields) {
    const double theta = theta_of(fields, "rope_theta");
    if (fields.has("rope_scaling") && fields.has("rope_parameters")) {
        fields.refuse("rope_parameters", "and rope_scaling are both given");
    }
    for (const char *const name : {"rope_scaling", "rope_parameters"}) {
        if (fields.has(name)) {
            const Fields parameters = fields.object(name);
            return rope_of(fields, &parameters, theta);
        }
    }
    return rope_of(fields, nullptr, theta);
}

/// Gemma 3: the layers with a window have a rotation of their own, which rope_scaling leaves alone.
struct TwoRopes {
    RopeOptions full, sliding;
};

TwoRopes two_ropes_of(const Fields &fields) {
    const double theta = theta_of(fields, "rope_theta");
    const double local_theta = theta_of(fields, "rope_local_base_freq");
    if (!fields.has("rope_parameters")) {
        TwoRopes ropes{rope_of(fields, nullptr, theta), rope_of(fields, nullptr, local_theta)};
        if (fields.has("rope_scaling")) {
            const Fields parameters = fields.object("rope_scaling");
            ropes.full = rope_of(fields, &parameters, theta);
        }
        return ropes;
    }
    if (fields.has("rope_scaling")) {
        fields.refuse("rope_parameters", "and rope_scaling are both given");
    }
    const Fields both = fields.object("rope_parameters");
    if (!both.has("full_attention") && !both.has("sliding_attention")) {
        fields.refuse("rope_parameters", "has neither full_attention nor sliding_attention");
    }
    const auto one = [&](const char *name, double fallback) {
        if (!both.has(name)) {
            return rope_of(fields, nullptr, fallback);
        }
        const Fields parameters = both.object(name);
        return rope_of(fields, &parameters, fallback);
    };
    return {one("full_attention", theta), one("sliding_attention", local_theta)};
}

// ---- Sliding windows ----

/// Which layers have a window: layer_types where it is given, else `pattern(layer)`.
template<class Pattern>
std::vector<bool> sliding_layers(const Fields &fields, std::size_t layers, const Pattern &pattern) {
    std::vector<bool> sliding(layers);
    const Json *const field = fields.find("layer_types");
    if (field == nullptr) {
        for (std::size_t layer = 0; layer < layers; layer++) {
            sliding[layer] = pattern(static_cast<std::int64_t>(layer));
        }
        return sliding;
    }
    const auto *const types = field->as<Json::Array>();
    if (types == nullptr || types->size() != layers) {
        fields.refuse("layer_types", "is not an array of num_hidden_layers names");
    }
    for (std::size_t layer = 0; layer < layers; layer++) {
        const auto *const type = (*types)[layer].as<std::string>();
        sliding[layer] = type != nullptr && *type == "sliding_attention";
        if (!sliding[layer] && (type == nullptr || *type != "full_attention")) {
            fields.unsupported("layer_types", "holds ", models::shown((*types)[layer]),
                               "; supported are full_attention, sliding_attention");
        }
    }
    return sliding;
}

bool any(const std::vector<bool> &sliding) {
    return std::find(sliding.begin(), sliding.end(), true) != sliding.end();
}

/// The layers with a window have that of sliding_window, which may be null where there are none.
void set_windows(const Fields &fields, ModelConfig &config, const std::vector<bool> &sliding) {
    const std::int64_t window = any(sliding) ? fields.integer("sliding_window", 1, max_size) : 0;
    for (std::size_t layer = 0; layer < sliding.size(); layer++) {
        config.blocks[layer].sliding_window = sliding[layer] ? window : 0;
    }
}

// ---- Families ----

struct Sizes {
    const char *hidden, *layers, *heads, *positions;
};
constexpr Sizes usual_sizes = {"hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"};

/// GPT-2 has names of its own; the usual ones mean the same and come first.
Sizes gpt2_sizes(const Fields &fields) {
    const auto name = [&](const char *usual, const char *own) { return fields.present(usual) ? usual : own; };
    return {name(usual_sizes.hidden, "n_embd"), name(usual_sizes.layers, "n_layer"), name(usual_sizes.heads, "n_head"),
            name(usual_sizes.positions, "n_positions")};
}

/// What all families have. Every block is the same until a family says otherwise.
BlockConfig common(const Fields &fields, const Sizes &names, ModelConfig &config) {
    BlockConfig block;
    block.hidden_size = fields.integer(names.hidden, 1, max_size);
    block.num_attention_heads = fields.integer(names.heads, 1, max_heads);
    block.max_position_embeddings = fields.integer(names.positions, 1, max_positions);
    config.blocks.resize(static_cast<std::size_t>(fields.integer(names.layers, 1, max_layers)));
    config.max_position_embeddings = block.max_position_embeddings;
    config.stack.vocab_size = fields.integer("vocab_size", 1, max_size);
    config.stack.hidden_size = block.hidden_size;
    return block;
}

void set_blocks(ModelConfig &config, const BlockConfig &block) {
    std::fill(config.blocks.begin(), config.blocks.end(), block);
    config.stack.norm = block.norm;
    config.stack.norm_flags = block.norm_flags;
    config.stack.rms_norm_eps = block.rms_norm_eps;
}

/// hidden_size / heads, which must come out even.
std::int64_t equal_share(const Fields &fields, const Sizes &names, const BlockConfig &block) {
    if (block.hidden_size % block.num_attention_heads != 0) {
        fields.refuse(names.heads, "is ", block.num_attention_heads, ", which does not divide ",
                      fields.called(names.hidden), " ", block.hidden_size);
    }
    const std::int64_t share = block.hidden_size / block.num_attention_heads;
    if (share > max_head_dim) {
        fields.unsupported(names.heads, "makes heads of ", share, " features; supported are 1 to ", max_head_dim);
    }
    return share;
}

void read_gpt2(const Fields &fields, ModelConfig &config) {
    const Sizes sizes = gpt2_sizes(fields);
    BlockConfig block = common(fields, sizes, config);
    block.intermediate_size = fields.has("n_inner") ? fields.integer("n_inner", 1, max_size) : 4 * block.hidden_size;
    block.num_key_value_heads = block.num_attention_heads;
    block.head_dim = equal_share(fields, sizes, block);
    block.norm = Norm::layer;
    block.gated_mlp = false;
    block.rms_norm_eps = static_cast<float>(fields.number("layer_norm_epsilon", 0, 1));
    block.hidden_act = activation_of(fields, "activation_function");
    no(fields, "add_cross_attention");
    set_blocks(config, block);
    // Scores are divided by the root of head_dim, of (layer + 1)^2, of both, or of neither.
    const bool by_head = fields.flag("scale_attn_weights");
    const bool by_layer = fields.flag("scale_attn_by_inverse_layer_idx");
    for (std::size_t layer = 0; layer < config.blocks.size(); layer++) {
        const auto number = static_cast<float>(layer + 1);
        config.blocks[layer].query_pre_attn_scalar =
            (by_head ? static_cast<float>(block.head_dim) : 1.0f) * (by_layer ? number * number : 1.0f);
    }
    config.qkv_bias = config.output_bias = config.mlp_bias = true;
}

/// An encoder, whose embedding is normalized and whose blocks see all tokens.
void read_bert(const Fields &fields, ModelConfig &config) {
    BlockConfig block = common(fields, usual_sizes, config);
    block.intermediate_size = fields.integer("intermediate_size", 1, max_size);
    block.num_key_value_heads = block.num_attention_heads;
    block.head_dim = equal_share(fields, usual_sizes, block);
    block.query_pre_attn_scalar = static_cast<float>(block.head_dim);
    block.norm = Norm::layer;
    block.norm_placement = NormPlacement::post;
    block.rms_norm_eps = static_cast<float>(fields.number("layer_norm_eps", 0, 1));
    block.gated_mlp = false;
    block.causal = false;
    block.hidden_act = activation_of(fields, "hidden_act");
    no(fields, "is_decoder");
    no(fields, "add_cross_attention");
    if (const std::string kind = fields.text("position_embedding_type", "absolute"); kind != "absolute") {
        fields.unsupported("position_embedding_type", "is ", in_quotes(kind), "; supported is 'absolute'");
    }
    set_blocks(config, block);
    config.stack.norm = Norm::none;  // the last block ends in one
    config.stack.embed_norm = Norm::layer;
    config.stack.no_lm_head = true;
    config.type_vocab_size = fields.integer("type_vocab_size", 1, max_size);
    config.qkv_bias = config.output_bias = config.mlp_bias = true;
}

/// Llama and what descends from it: RMSNorm, rotary embedding, gated FFN, grouped queries.
BlockConfig llama_like(const Fields &fields, ModelConfig &config, const char *act) {
    BlockConfig block = common(fields, usual_sizes, config);
    const auto null = [&](const char *name, std::initializer_list<Architecture> allowed) {
        return !fields.has(name) && std::find(allowed.begin(), allowed.end(), config.architecture) != allowed.end();
    };
    using A = Architecture;
    block.num_key_value_heads = null("num_key_value_heads", {A::llama, A::qwen2, A::qwen3})
                                    ? block.num_attention_heads
                                    : fields.integer("num_key_value_heads", 1, block.num_attention_heads);
    if (block.num_attention_heads % block.num_key_value_heads != 0) {
        fields.refuse("num_key_value_heads", "is ", block.num_key_value_heads, ", which does not divide ",
                      fields.called("num_attention_heads"), " ", block.num_attention_heads);
    }
    block.head_dim = null("head_dim", {A::llama, A::mistral, A::qwen2}) ? equal_share(fields, usual_sizes, block)
                                                                        : fields.integer("head_dim", 1, max_head_dim);
    if (block.head_dim % 2 != 0) {
        fields.unsupported("head_dim", "is ", block.head_dim, "; supported are even numbers, for the rotary embedding");
    }
    block.intermediate_size = fields.integer("intermediate_size", 1, max_size);
    block.rms_norm_eps = static_cast<float>(fields.number("rms_norm_eps", 0, 1));
    block.hidden_act = activation_of(fields, act);
    block.query_pre_attn_scalar = static_cast<float>(block.head_dim);
    return block;
}

void read_llama(const Fields &fields, ModelConfig &config) {
    BlockConfig block = llama_like(fields, config, "hidden_act");
    block.rope = rope_of(fields);
    set_blocks(config, block);
    config.qkv_bias = config.output_bias = fields.flag("attention_bias");
    config.mlp_bias = fields.flag("mlp_bias");
}

void read_mistral(const Fields &fields, ModelConfig &config) {
    BlockConfig block = llama_like(fields, config, "hidden_act");
    block.rope = rope_of(fields);
    set_blocks(config, block);
    const bool sliding = fields.has("sliding_window");  // all layers are alike
    const std::vector<bool> all(config.blocks.size(), sliding);
    if (sliding_layers(fields, all.size(), [&](std::int64_t) { return sliding; }) != all) {
        fields.unsupported("layer_types", "differs from what sliding_window says of all layers");
    }
    set_windows(fields, config, all);
}

void read_qwen(const Fields &fields, ModelConfig &config) {
    BlockConfig block = llama_like(fields, config, "hidden_act");
    block.rope = rope_of(fields);
    set_blocks(config, block);
    const bool used = fields.flag("use_sliding_window"), windows = used && fields.has("sliding_window");
    const std::int64_t first = fields.integer("max_window_layers", 0, max_size);
    const std::vector<bool> sliding =
        sliding_layers(fields, config.blocks.size(), [&](std::int64_t layer) { return windows && layer >= first; });
    if (any(sliding) && !used) {
        fields.refuse("layer_types", "has sliding_attention, and use_sliding_window is false");
    }
    set_windows(fields, config, sliding);
    if (config.architecture == Architecture::qwen2) {
        config.qkv_bias = true;
    } else {
        config.qkv_bias = config.output_bias = fields.flag("attention_bias");
        config.qk_norm = true;
    }
}

/// All three of Gemma: 1 + weight in the norms, embeddings times the root of their width.
BlockConfig gemma_like(const Fields &fields, ModelConfig &config, const char *act) {
    BlockConfig block = llama_like(fields, config, act);
    block.norm_flags = HALYARD_RMS_UNIT_OFFSET;
    no(fields, "use_bidirectional_attention");
    config.stack.embedding_multiplier = static_cast<float>(std::sqrt(static_cast<double>(block.hidden_size)));
    config.qkv_bias = config.output_bias = fields.flag("attention_bias");
    return block;
}

void read_gemma(const Fields &fields, ModelConfig &config) {
    const char *const act = fields.has("hidden_activation") ? "hidden_activation" : "hidden_act";
    BlockConfig block = gemma_like(fields, config, act);
    if (block.hidden_act == Activation::gelu) {
        block.hidden_act = Activation::gelu_tanh;  // its first files say "gelu" and mean this
    }
    block.rope = rope_of(fields);
    set_blocks(config, block);
}

void read_gemma2_or_3(const Fields &fields, ModelConfig &config) {
    const bool third = config.architecture == Architecture::gemma3;
    BlockConfig block = gemma_like(fields, config, "hidden_activation");
    block.norm_placement = NormPlacement::sandwich;
    block.query_pre_attn_scalar = static_cast<float>(fields.number("query_pre_attn_scalar", 1e-6, max_number));
    const auto soft_cap = [&](const char *name) {
        return static_cast<float>(fields.has(name) ? fields.number(name, 1e-6, max_number) : 0);
    };
    if (!third) {
        block.attn_logit_softcapping = soft_cap("attn_logit_softcapping");
    } else if (fields.has("attn_logit_softcapping")) {
        fields.unsupported("attn_logit_softcapping",
                           "is given, which transformers does not apply in this architecture; "
                           "supported is null");
    }
    block.rope = third ? two_ropes_of(fields).full : rope_of(fields);
    set_blocks(config, block);
    config.stack.final_logit_softcapping = soft_cap("final_logit_softcapping");
    config.qk_norm = third;

    const std::int64_t pattern = third ? fields.integer("sliding_window_pattern", 1, max_size) : 2;
    const std::vector<bool> sliding =
        sliding_layers(fields, config.blocks.size(), [&](std::int64_t layer) { return (layer + 1) % pattern != 0; });
    set_windows(fields, config, sliding);
    if (third) {
        const RopeOptions local = two_ropes_of(fields).sliding;
        for (std::size_t layer = 0; layer < sliding.size(); layer++) {
            if (sliding[layer]) {
                config.blocks[layer].rope = local;
            }
        }
    }
}

std::vector<std::int64_t> end_tokens(const Fields &fields) {
    const Json *const value = fields.find("eos_token_id");
    if (value == nullptr) {
        return {};
    }
    std::vector<std::int64_t> tokens;
    const auto add = [&](const Json &token) {
        const auto *const number = token.as<std::uint64_t>();
        if (number == nullptr || *number > max_size) {
            fields.refuse("eos_token_id", "holds ", models::shown(token), " instead of a token");
        }
        tokens.push_back(static_cast<std::int64_t>(*number));
    };
    if (const auto *const list = value->as<Json::Array>()) {
        std::for_each(list->begin(), list->end(), add);
    } else {
        add(*value);
    }
    return tokens;
}

}  // namespace

const char *to_string(Architecture architecture) noexcept {
    for (const auto &[name, known] : architectures) {
        if (known == architecture) {
            return name;
        }
    }
    return nullptr;
}

ModelConfig models::config_of(Json::Object root, const std::string &file, const Fields::Names *names) {
    const Fields fields(root, file, names);
    ModelConfig config;
    config.architecture = architecture_of(fields);
    for (const auto &[architecture, absent] : defaults) {
        if (architecture == config.architecture) {
            root.merge(parse_json(absent, file, std::string_view(absent).size()));  // leaves what is there
        }
    }
    no(fields, "is_encoder_decoder");
    switch (config.architecture) {
    case Architecture::gpt2:
        read_gpt2(fields, config);
        break;
    case Architecture::llama:
        read_llama(fields, config);
        break;
    case Architecture::mistral:
        read_mistral(fields, config);
        break;
    case Architecture::qwen2:
    case Architecture::qwen3:
        read_qwen(fields, config);
        break;
    case Architecture::gemma:
        read_gemma(fields, config);
        break;
    case Architecture::gemma2:
    case Architecture::gemma3:
        read_gemma2_or_3(fields, config);
        break;
    case Architecture::bert:
        read_bert(fields, config);
        break;
    }
    config.tie_word_embeddings = fields.flag("tie_word_embeddings");
    config.eos_token_ids = end_tokens(fields);
    return config;
}

models::FolderConfig models::parse_config(std::string_view text, const std::string &file) {
    // Published files have some thousand bytes.
    constexpr std::size_t max_bytes = 1'000'000;
    const DefaultFloatingPoint floating_point;
    FolderConfig config;
    Json::Object root = parse_json(text, file, max_bytes);
    config.quantization = quantization_of(Fields(root, file));
    config.model = config_of(std::move(root), file);
    if (config.quantization && layout_of(config.model.architecture) == WeightLayout::in_out) {
        unsupported(file, ": quantization_config is given, and ", to_string(config.model.architecture),
                    " has matrices [in, out]; supported are [out, in]");
    }
    return config;
}

ModelConfig ModelConfig::parse(std::string_view text, const std::string &file) {
    return models::parse_config(text, file).model;
}

std::filesystem::path models::config_file(const std::filesystem::path &path) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored)) {
        if (path.extension() == ".safetensors" && std::filesystem::exists(path, ignored)) {
            models::refuse(path, "is a .safetensors file: give the folder that holds it");
        }
        if (path.filename() == "model.safetensors.index.json") {
            models::refuse(path, "lists the files of a model: give the folder that holds it");
        }
        return path;
    }
    const std::filesystem::path json = path / "config.json", gguf = path / "model.gguf";
    return !std::filesystem::exists(json, ignored) && std::filesystem::exists(gguf, ignored) ? gguf : json;
}

ModelConfig ModelConfig::load(const std::filesystem::path &path) {
    const std::filesystem::path file = models::config_file(path);
    const models::MappedFile mapped(file);
    if (mapped.text().substr(0, 4) != "GGUF") {
        return parse(mapped.text(), file.string());
    }
    const models::DefaultFloatingPoint floating_point;
    return models::config_of(models::Gguf::open(file));
}

}  // namespace halyard
