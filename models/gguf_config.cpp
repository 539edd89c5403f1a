// Metadata becomes the fields of a config.json, which config.cpp reads: there is one place that knows the families. What
// is absent has the meaning that llama.cpp gives it, and metadata of the architecture that is unknown is refused, since it
// may change the result.
#include "gguf_config.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "config.h"
#include "fail.h"
#include "names.h"

namespace halyard::models {

namespace {

struct Family {
    const char *in_gguf, *in_transformers;
};
constexpr Family families[] = {
    {"llama", "LlamaForCausalLM"}, {"qwen2", "Qwen2ForCausalLM"},   {"qwen3", "Qwen3ForCausalLM"},
    {"gemma", "GemmaForCausalLM"}, {"gemma2", "Gemma2ForCausalLM"}, {"gemma3", "Gemma3ForCausalLM"},
    {"gpt2", "GPT2LMHeadModel"},
};

/// Metadata that is called "llama." and so on before `key`, and the field of config.json that it is.
struct Entry {
    const char *key;
    const char *field;          ///< null: looked at below, or without meaning here
    const char *required;       ///< architectures that must have it: "all", or some of them between spaces
    const char *known = "all";  ///< architectures that may have it
};
constexpr const char *no_gpt2 = " llama qwen2 qwen3 gemma gemma2 gemma3 ";
constexpr Entry entries[] = {
    {"context_length", "max_position_embeddings", "all"},
    {"embedding_length", "hidden_size", "all"},
    {"block_count", "num_hidden_layers", "all"},
    {"feed_forward_length", "intermediate_size", "all"},
    {"feed_forward_length", "n_inner", " gpt2 ", " gpt2 "},
    {"attention.head_count", "num_attention_heads", "all"},
    {"attention.head_count_kv", "num_key_value_heads", ""},
    {"attention.key_length", "head_dim", " qwen3 gemma gemma2 gemma3 "},
    {"attention.value_length", nullptr, ""},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", no_gpt2, no_gpt2},
    {"attention.layer_norm_epsilon", "layer_norm_epsilon", " gpt2 ", " gpt2 "},
    {"attention.sliding_window", "sliding_window", "", " llama gemma2 gemma3 "},
    {"attention.sliding_window_pattern", "sliding_window_pattern", "", " gemma3 "},
    {"attn_logit_softcapping", "attn_logit_softcapping", "", " gemma2 "},
    {"final_logit_softcapping", "final_logit_softcapping", "", " gemma2 gemma3 "},
    {"rope.dimension_count", nullptr, "", no_gpt2},
    {"rope.freq_base", "rope_theta", "", no_gpt2},
    {"rope.freq_base_swa", "rope_local_base_freq", "", " gemma3 "},
    {"rope.scaling.type", nullptr, "", no_gpt2},
    {"rope.scaling.factor", nullptr, "", no_gpt2},
    {"rope.scaling.original_context_length", nullptr, "", no_gpt2},
    {"rope.scaling.finetuned", nullptr, ""},
    {"vocab_size", nullptr, ""},
    {"tensor_data_layout", nullptr, ""},
};

bool holds(const char *list, const std::string &architecture) {
    return std::string_view(list) == "all" ||
           std::string_view(list).find(" " + architecture + " ") != std::string_view::npos;
}

/// The metadata of one file on its way to the fields of config.json.
class Translation {
public:
    explicit Translation(const Gguf &file) : file_(file) {
        const Json name = file.metadata("general.architecture");
        const auto *const text = name.as<std::string>();
        if (text == nullptr) {
            refuse(file.file(), file.has("general.architecture") ? ": general.architecture is " + shown(name)
                                                                 : std::string(": general.architecture is missing"));
        }
        architecture_ = *text;
        for (const Family &family : families) {
            if (architecture_ == family.in_gguf) {
                set("architectures", {Json::Array{{std::string(family.in_transformers)}}});
            }
        }
        if (root_.empty()) {
            unsupported(file.file(), ": general.architecture is ", in_quotes(architecture_), "; supported are ",
                        architectures_in_gguf());
        }
    }

    ModelConfig config() {
        check_the_rest();
        refuse_the_unknown();
        for (const Entry &entry : entries) {
            if (entry.field != nullptr && holds(entry.known, architecture_)) {
                const std::string key = key_of(entry.key);
                names_[entry.field] = key;
                if (file_.has(key)) {
                    set(entry.field, file_.metadata(key));
                } else if (holds(entry.required, architecture_)) {
                    refuse(file_.file(), ": ", key, " is missing");
                }
            }
        }
        if (root_.count("num_key_value_heads") == 0) {
            set("num_key_value_heads", root_["num_attention_heads"]);
        }
        set_vocabulary();
        set_rotation();
        set_windows();
        // The first layer decides; the others must agree with it.
        set("attention_bias", {file_.find("blk.0.attn_q.bias") != nullptr});
        set("mlp_bias", {file_.find("blk.0.ffn_up.bias") != nullptr});

        ModelConfig config = config_of(root_, file_.file(), &names_);
        check_heads(config.blocks.front());
        for (BlockConfig &block : config.blocks) {
            block.norm_flags = 0;  // Gemma's norms: 1 is added in the file
        }
        config.stack.norm_flags = 0;
        set_factors(config);
        return config;
    }

private:
    std::string key_of(const std::string &key) const { return architecture_ + "." + key; }
    void set(const char *field, Json value) { root_[field] = std::move(value); }
    /// Metadata of the architecture as fields.
    Fields fields(const Json::Object &object) const { return Fields(object, file_.file()); }
    Json::Object own(std::initializer_list<const char *> keys) const {
        Json::Object result;
        for (const char *const key : keys) {
            if (file_.has(key_of(key))) {
                result[key_of(key)] = file_.metadata(key_of(key));
            }
        }
        return result;
    }

    void check_the_rest() const {
        Json::Object object;
        for (const char *const key : {"general.type", "general.quantization_version"}) {
            if (file_.has(key)) {
                object[key] = file_.metadata(key);
            }
        }
        const Fields general = fields(object);
        if (const std::string type = general.text("general.type", "model"); type != "model") {
            general.unsupported("general.type", "is ", in_quotes(type), "; supported is 'model'");
        }
        // Older versions have other blocks.
        general.integer("general.quantization_version", 2, 2, 2);
    }

    void refuse_the_unknown() const {
        const std::string prefix = architecture_ + ".";
        for (const std::string &key : file_.keys()) {
            const auto known = [&](const Entry &entry) {
                return key == prefix + entry.key && holds(entry.known, architecture_);
            };
            if (key.compare(0, prefix.size(), prefix) == 0 &&
                std::none_of(std::begin(entries), std::end(entries), known)) {
                unsupported(file_.file(), ": metadata ", in_quotes(key), " is not supported");
            }
        }
    }

    void set_vocabulary() {
        const TensorInfo *const embedding = file_.find("token_embd.weight");
        if (embedding == nullptr) {
            refuse(file_.file(), ": tensor 'token_embd.weight' is missing");
        }
        const std::string key = key_of("vocab_size");
        names_["vocab_size"] = key;
        set("vocab_size",
            file_.has(key) ? file_.metadata(key) : Json{static_cast<std::uint64_t>(embedding->shape.front())});
        set("tie_word_embeddings", {file_.find("output.weight") == nullptr});
        Json::Array ends;
        for (const char *const end : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
            if (file_.has(end)) {
                ends.push_back(file_.metadata(end));
            }
        }
        set("eos_token_id", {std::move(ends)});
        names_["eos_token_id"] = "tokenizer.ggml.eos_token_id or .eot_token_id";
    }

    void set_rotation() {
        if (root_.count("rope_theta") == 0) {
            set("rope_theta", {std::uint64_t{10000}});
        }
        const std::string type_key = key_of("rope.scaling.type"), factor_key = key_of("rope.scaling.factor");
        const std::string type =
            fields(own({"rope.scaling.type"})).text(type_key.c_str(), file_.has(factor_key) ? "linear" : "none");
        names_["rope_scaling.type"] = type_key;
        names_["rope_scaling.factor"] = factor_key;
        if (type != "none" && (type != "linear" || file_.has(factor_key))) {
            Json::Object scaling{{"type", {type}}};
            if (file_.has(factor_key)) {
                scaling["factor"] = file_.metadata(factor_key);
            }
            set("rope_scaling", {std::move(scaling)});
        }
    }

    void set_windows() {
        if (const auto at = root_.find("sliding_window"); at != root_.end()) {
            const auto *const width = at->second.as<std::uint64_t>();
            if (width != nullptr && *width == 0) {
                root_.erase(at);  // says that there is none
            }
        }
        const bool window = root_.count("sliding_window") > 0;
        if (architecture_ == "llama" && window) {
            set("architectures", {Json::Array{{std::string("MistralForCausalLM")}}});  // a window in every layer
        }
        if (architecture_ == "gemma3" && !window) {
            set("sliding_window_pattern", {std::uint64_t{1}});  // none
        }
        if (architecture_ == "gemma2" || architecture_ == "gemma3") {
            // Not in the file: the largest model of each divides by the root of another number.
            const std::int64_t largest = architecture_ == "gemma2" ? 46 : 62;
            const Fields sizes(root_, file_.file(), &names_);
            constexpr std::int64_t most = std::int64_t{1} << 31;
            const bool is_largest = sizes.integer("num_hidden_layers", 1, most) == largest;
            const std::int64_t scalar =
                is_largest ? sizes.integer("hidden_size", 1, most) / sizes.integer("num_attention_heads", 1, most)
                           : sizes.integer("head_dim", 1, most);
            set("query_pre_attn_scalar", {static_cast<std::uint64_t>(scalar)});
        }
    }

    /// Heads of v are as wide as those of q and k, and all of it is rotated.
    void check_heads(const BlockConfig &block) const {
        for (const char *const name : {"attention.key_length", "attention.value_length", "rope.dimension_count"}) {
            const Json::Object object = own({name});
            const std::string key = key_of(name);
            const std::int64_t width = fields(object).integer(key.c_str(), 0, std::int64_t{1} << 31, block.head_dim);
            if (width != block.head_dim) {
                fields(object).unsupported(key.c_str(), "is ", width, "; supported is ", block.head_dim,
                                           ", the width of a head");
            }
        }
    }

    /// Llama 3's scaling: the file has the factors that frequencies are divided by, and not the numbers that they follow
    /// from. All published models have frequency factors of 1 and 4, and the number of positions is a power of two.
    void set_factors(ModelConfig &config) const {
        std::int64_t first = 1, last = std::int64_t{1} << 24;
        if (const char *const name = "rope.scaling.original_context_length"; file_.has(key_of(name))) {
            first = last = fields(own({name})).integer(key_of(name).c_str(), first, last);
        }
        const TensorInfo *const factors = file_.find(rope_factors_name);
        if (factors == nullptr || architecture_ != "llama") {
            return;
        }
        const std::int64_t half = config.blocks.front().head_dim / 2;
        if (factors->dtype != "F32" || factors->shape != std::vector<std::int64_t>{half}) {
            refuse(file_.file(), ": tensor ", in_quotes(rope_factors_name), " is ", factors->dtype, " of shape ",
                   shape_text(factors->shape), " instead of F32 of shape ", shape_text({half}));
        }
        std::vector<float> wanted(static_cast<std::size_t>(half));
        std::memcpy(wanted.data(), factors->data, wanted.size() * sizeof(float));
        const RopeOptions &plain = config.blocks.front().rope;
        if (std::all_of(wanted.begin(), wanted.end(), [](float factor) { return factor == 1; })) {
            return;
        }
        if (plain.scaling != RopeScaling::none) {
            unsupported(file_.file(), ": tensor ", in_quotes(rope_factors_name), " is there, and ",
                        key_of("rope.scaling.type"), " as well");
        }
        RopeOptions rope = plain;
        rope.scaling = RopeScaling::llama3;
        rope.factor = wanted.back();
        if (!(rope.factor >= 1 && rope.factor <= most_rope_factor)) {
            refuse(file_.file(), ": tensor ", in_quotes(rope_factors_name), " ends with the factor ", rope.factor,
                   "; supported are 1 to ", most_rope_factor);
        }
        rope.low_freq_factor = 1;
        rope.high_freq_factor = 4;
        for (std::int64_t positions = first; positions <= last; positions *= 2) {
            rope.original_max_position_embeddings = positions;
            if (follows(wanted, rope)) {
                for (BlockConfig &block : config.blocks) {
                    block.rope = rope;
                }
                return;
            }
        }
        unsupported(file_.file(), ": tensor ", in_quotes(rope_factors_name),
                    " holds other factors than those of Llama 3 (low_freq_factor 1, high_freq_factor 4)");
    }

    static bool follows(const std::vector<float> &factors, const RopeOptions &rope) {
        constexpr double tolerance = 1e-4;  // they were computed in f32
        for (std::size_t i = 0; i < factors.size(); i++) {
            const double factor =
                llama3_factor(rope, static_cast<std::int64_t>(i), static_cast<std::int64_t>(factors.size()));
            if (!(std::abs(factors[i] - factor) <= tolerance * factor)) {
                return false;
            }
        }
        return true;
    }

    const Gguf &file_;
    std::string architecture_;
    Json::Object root_;
    Fields::Names names_;
};

}  // namespace

ModelConfig config_of(const Gguf &file) {
    return Translation(file).config();
}

const char *name_in_gguf(Architecture architecture) noexcept {
    const std::string_view name = to_string(is_llama(architecture) ? Architecture::llama : architecture);
    const auto *const family = std::find_if(std::begin(families), std::end(families),
                                            [&](const Family &each) { return each.in_transformers == name; });
    return family != std::end(families) ? family->in_gguf : nullptr;
}

std::string architectures_in_gguf() {
    std::string names;
    for (const Family &family : families) {
        names += (names.empty() ? "" : ", ") + std::string(family.in_gguf);
    }
    return names;
}

double llama3_factor(const RopeOptions &rope, std::int64_t i, std::int64_t frequencies) noexcept {
    constexpr double pi = 3.14159265358979323846;
    const double exponent = static_cast<double>(i) / static_cast<double>(frequencies);
    const double periods =
        static_cast<double>(rope.original_max_position_embeddings) / (2 * pi * std::pow(rope.rope_theta, exponent));
    const double smooth =
        std::clamp((periods - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0, 1.0);
    return 1 / ((1 - smooth) / rope.factor + smooth);
}

}  // namespace halyard::models
