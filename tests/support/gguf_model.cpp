#include "support/gguf_model.h"

#include <cmath>
#include <random>

namespace halyard::tests {

namespace {

using Config = nlohmann::json;

constexpr double pi = 3.14159265358979323846;

const std::pair<const char *, const char *> architectures_in_gguf[] = {
    {"GPT2LMHeadModel", "gpt2"},     {"LlamaForCausalLM", "llama"},   {"MistralForCausalLM", "llama"},
    {"Qwen2ForCausalLM", "qwen2"},   {"Qwen3ForCausalLM", "qwen3"},   {"GemmaForCausalLM", "gemma"},
    {"Gemma2ForCausalLM", "gemma2"}, {"Gemma3ForCausalLM", "gemma3"},
};

std::string architecture_of(const Config &config) {
    for (const auto &[name, in_gguf] : architectures_in_gguf) {
        if (config["architectures"][0] == name) {
            return in_gguf;
        }
    }
    return "";
}

const std::pair<const char *, const char *> of_stack[] = {
    {"transformer.wte.weight", "token_embd.weight"},
    {"transformer.wpe.weight", "position_embd.weight"},
    {"transformer.ln_f.weight", "output_norm.weight"},
    {"transformer.ln_f.bias", "output_norm.bias"},
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
};
const std::pair<const char *, const char *> of_layers[] = {
    {"ln_1", "attn_norm"},
    {"attn.c_attn", "attn_qkv"},
    {"attn.c_proj", "attn_output"},
    {"ln_2", "ffn_norm"},
    {"mlp.c_fc", "ffn_up"},
    {"mlp.c_proj", "ffn_down"},
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
};

std::string name_in_gguf(const std::string &name, bool sandwich) {
    for (const auto &[theirs, ours] : of_stack) {
        if (name == theirs) {
            return ours;
        }
    }
    // model.layers.3.mlp.up_proj.weight or transformer.h.3.ln_1.bias
    const std::size_t begin = name.find_first_of("0123456789"), end = name.find('.', begin), last = name.rfind('.');
    const std::string part = name.substr(end + 1, last - end - 1);
    std::string ours = part == "post_attention_layernorm" ? sandwich ? "post_attention_norm" : "ffn_norm" : "";
    for (const auto &[theirs, in_gguf] : of_layers) {
        ours = part == theirs ? in_gguf : ours;
    }
    EXPECT_NE(ours, "") << name;
    return "blk." + name.substr(begin, end - begin) + "." + ours + name.substr(last);
}

/** Rows of each head: the first of its first half, the first of its second half, the second of its first half, ... */
std::string interleaved(const std::string &bytes, std::size_t heads, std::size_t head_dim) {
    const std::size_t row = bytes.size() / (heads * head_dim);
    std::string result;
    for (std::size_t head = 0; head < heads; head++) {
        for (std::size_t i = 0; i < head_dim / 2; i++) {
            result += bytes.substr((head * head_dim + i) * row, row);
            result += bytes.substr((head * head_dim + head_dim / 2 + i) * row, row);
        }
    }
    return result;
}

std::string transposed(const std::string &bytes, std::size_t rows, std::size_t element) {
    const std::size_t columns = bytes.size() / rows / element;
    std::string result;
    for (std::size_t column = 0; column < columns; column++) {
        for (std::size_t row = 0; row < rows; row++) {
            result += bytes.substr((row * columns + column) * element, element);
        }
    }
    return result;
}

std::string bytes_of(const std::vector<float> &values) {
    return std::string(reinterpret_cast<const char *>(values.data()), values.size() * sizeof(float));
}

bool contains(const std::string &text, const char *part) {
    return text.find(part) != std::string::npos;
}

void set_metadata(GgufFile &file, const Config &config, const std::string &architecture) {
    const auto set = [&](const char *key, const char *field) {
        if (config.contains(field) && !config[field].is_null()) {
            const std::string name = architecture + "." + key;
            if (config[field].is_number_float()) {
                file.set(name, config[field].get<float>());
            } else {
                file.set(name, config[field].get<std::uint32_t>());
            }
        }
    };
    file.set("general.architecture", architecture.c_str());
    file.set("general.quantization_version", std::uint32_t{2});
    file.entries.push_back({"tokenizer.ggml.tokens", 9, gguf_array(8, 2, gguf_string("a") + gguf_string("bc"))});
    file.entries.push_back({"tokenizer.ggml.scores", 9, gguf_array(6, 2, std::string(8, '\0'))});
    file.set("tokenizer.ggml.eos_token_id", std::uint32_t{2});
    if (architecture == "gpt2") {
        set("context_length", "n_positions");
        set("embedding_length", "n_embd");
        set("block_count", "n_layer");
        set("feed_forward_length", "n_inner");
        set("attention.head_count", "n_head");
        set("attention.layer_norm_epsilon", "layer_norm_epsilon");
        return;
    }
    set("context_length", "max_position_embeddings");
    set("embedding_length", "hidden_size");
    set("block_count", "num_hidden_layers");
    set("feed_forward_length", "intermediate_size");
    set("attention.head_count", "num_attention_heads");
    set("attention.head_count_kv", "num_key_value_heads");
    set("attention.key_length", "head_dim");
    set("attention.value_length", "head_dim");
    set("rope.dimension_count", "head_dim");
    set("attention.layer_norm_rms_epsilon", "rms_norm_eps");
    set("vocab_size", "vocab_size");
    set("attn_logit_softcapping", "attn_logit_softcapping");
    set("final_logit_softcapping", "final_logit_softcapping");
    if (architecture != "qwen2") {
        set("attention.sliding_window", "sliding_window");
    }
    Config rope = config["rope_parameters"];
    if (architecture == "gemma3") {
        file.set("gemma3.attention.sliding_window_pattern", std::uint32_t{2});
        file.set("gemma3.rope.freq_base_swa", rope["sliding_attention"]["rope_theta"].get<float>());
        rope = Config(rope["full_attention"]);
    }
    file.set(architecture + ".rope.freq_base", rope["rope_theta"].get<float>());
    if (rope["rope_type"] == "linear") {
        file.set(architecture + ".rope.scaling.type", "linear");
        file.set(architecture + ".rope.scaling.factor", rope["factor"].get<float>());
    }
}

/** Llama 3's factors, in f32 like the converter's. */
void add_rope_factors(GgufFile &file, const Config &rope, std::size_t head_dim) {
    const auto number = [&](const char *name) { return rope[name].get<float>(); };
    const float factor = number("factor"), low = number("low_freq_factor"), high = number("high_freq_factor");
    const float positions = number("original_max_position_embeddings");
    std::vector<float> factors;
    for (std::size_t i = 0; i < head_dim; i += 2) {
        const float frequency =
            1 / std::pow(number("rope_theta"), static_cast<float>(i) / static_cast<float>(head_dim));
        const float wavelength = 2 * static_cast<float>(pi) / frequency;
        const float smooth = (positions / wavelength - low) / (high - low);
        factors.push_back(wavelength < positions / high  ? 1
                          : wavelength > positions / low ? factor
                                                         : 1 / ((1 - smooth) / factor + smooth));
    }
    file.add({"rope_freqs.weight", {factors.size()}, 0, bytes_of(factors)});
}

}  // namespace

void add_attention_biases(Folder &folder, std::int64_t width) {
    folder.config["attention_bias"] = true;
    for (const std::string layer : {"0", "1", "2"}) {
        for (const auto &[name, elements] : {std::pair("q", 3 * width), {"k", width}, {"v", width}, {"o", width}}) {
            folder.tensors["model.layers." + layer + ".self_attn." + name + "_proj.bias"] = {
                "F32", {elements}, std::string(static_cast<std::size_t>(elements) * sizeof(float), '\0')};
        }
    }
}

const std::vector<std::int64_t> &llama_prompt() {
    static const std::vector<std::int64_t> ids = Transformers(model_fixtures / "llama3_f32").input_ids;
    return ids;
}

std::vector<float> floats_of(const StoredTensor &tensor) {
    std::size_t elements = 1;
    for (const std::int64_t extent : tensor.shape) {
        elements *= static_cast<std::size_t>(extent);
    }
    std::vector<float> values(elements);
    if (tensor.dtype == "F32") {
        std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    } else if (tensor.dtype == "F16") {
        std::vector<f16> stored(elements);
        std::memcpy(stored.data(), tensor.bytes.data(), tensor.bytes.size());
        cast(stored, values);
    } else {
        std::vector<bf16> stored(elements);
        std::memcpy(stored.data(), tensor.bytes.data(), tensor.bytes.size());
        cast(stored, values);
    }
    return values;
}

void make_expressible(Folder &folder) {
    Config &config = folder.config;
    const std::string architecture = architecture_of(config);
    if (architecture == "qwen2") {  // no windows
        config["use_sliding_window"] = false;
        config["sliding_window"] = nullptr;
        config.erase("layer_types");
    }
    if (architecture == "gemma2" || architecture == "gemma3") {  // no scale of the scores
        config["query_pre_attn_scalar"] = config["head_dim"];
    }
}

GgufFile gguf_of(const Folder &folder) {
    const Config &config = folder.config;
    const std::string architecture = architecture_of(config);
    const bool gemma = contains(architecture, "gemma"), sandwich = gemma && architecture != "gemma";
    GgufFile file;
    set_metadata(file, config, architecture);
    for (const auto &[name, tensor] : folder.tensors) {
        GgufFile::Tensor stored{name_in_gguf(name, sandwich), {}, 0, tensor.bytes};
        stored.shape.assign(tensor.shape.begin(), tensor.shape.end());
        stored.type = tensor.dtype == "F32" ? 0 : tensor.dtype == "F16" ? 1 : 30;
        if (stored.shape.size() == 1) {
            std::vector<float> values = floats_of(tensor);
            for (float &value : values) {
                value += gemma && contains(name, "norm") ? 1.0f : 0.0f;
            }
            stored.type = 0;
            stored.data = bytes_of(values);
        } else if (architecture == "gpt2" && contains(name, ".c_")) {
            stored.data = transposed(stored.data, stored.shape[0], stored.type == 0 ? 4 : 2);
            std::swap(stored.shape[0], stored.shape[1]);
        }
        if (architecture == "llama" && (contains(name, "q_proj") || contains(name, "k_proj"))) {
            const std::size_t heads = config[contains(name, "q_proj") ? "num_attention_heads" : "num_key_value_heads"];
            stored.data = interleaved(stored.data, heads, stored.shape[0] / heads);
        }
        file.add(stored);
    }
    if (architecture == "llama" && config["rope_parameters"]["rope_type"] == "llama3") {
        add_rope_factors(file, config["rope_parameters"], config["head_dim"]);
    }
    return file;
}

void widen(Folder &folder, std::int64_t width) {
    folder.config.merge_patch({{"hidden_size", width}, {"intermediate_size", 2 * width}, {"head_dim", width}});
    const std::map<std::int64_t, std::int64_t> wider = {
        {33, width}, {47, 2 * width}, {30, 3 * width}, {10, width}, {61, 61}};
    std::mt19937_64 random(3);
    for (auto &[name, tensor] : folder.tensors) {
        std::size_t elements = 1;
        for (std::int64_t &extent : tensor.shape) {
            extent = wider.at(extent);
            elements *= static_cast<std::size_t>(extent);
        }
        std::vector<float> values(elements);
        for (float &value : values) {
            value = static_cast<float>(random() % 2001) * 1e-4f - 0.1f;
        }
        tensor.bytes.assign(reinterpret_cast<const char *>(values.data()), elements * sizeof(float));
    }
}

}  // namespace halyard::tests
