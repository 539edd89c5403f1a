#include "quantization_config.h"

#include <utility>

namespace halyard::models {

namespace {

/// "GPTQ 4 bits"
std::string name_with_bits(const char *method, int bits) {
    return method + (" " + std::to_string(bits)) + " bits";
}

/// A text that must be one of a few; `fallback` where the field is absent or null.
template<class... Known>
std::string one_of(const Fields &fields, const char *name, const char *fallback, const Known &...known) {
    const std::string value = fallback != nullptr && !fields.has(name) ? std::string(fallback) : fields.text(name);
    if (!((value == known) || ...)) {
        std::string names;
        ((names += (names.empty() ? "" : ", ") + std::string(known)), ...);
        fields.unsupported(name, "is ", in_quotes(value), "; supported are ", names);
    }
    return value;
}

bool flag_or(const Fields &fields, const char *name, bool fallback) {
    return fields.has(name) ? fields.flag(name) : fallback;
}

int bits_of(const Fields &fields, const char *name) {
    const std::int64_t bits = fields.integer(name, 1, 64);
    if (bits != 4 && bits != 8) {
        fields.unsupported(name, "is ", bits, "; supported are 4 and 8");
    }
    return static_cast<int>(bits);
}

/// Inputs that share a scale; -1 in a file, and 0 here, stand for all.
std::int64_t group_of(const Fields &fields, const char *name, std::optional<std::int64_t> fallback) {
    constexpr std::int64_t most = (std::int64_t{1} << 31) - 1;
    const std::int64_t group = fields.integer(name, -1, most, fallback);
    if (group == -1) {
        return 0;
    }
    if (group == 0 || group % 16 != 0) {
        fields.unsupported(name, "is ", group, "; supported are multiples of 16, and -1");
    }
    return group;
}

/// A field that may be absent, null, false or empty, for what it says would change the numbers.
void nothing(const Fields &fields, const char *name) {
    const Json *const value = fields.find(name);
    if (value == nullptr) {
        return;
    }
    const bool *const flag = value->as<bool>();
    const auto *const object = value->as<Json::Object>();
    if ((flag == nullptr || *flag) && (object == nullptr || !object->empty())) {
        fields.unsupported(name, "is ", shown(*value), "; supported is none");
    }
}

// ---- Methods ----

QuantizationConfig gptq(const Fields &fields) {
    QuantizationConfig config;
    const std::string format = one_of(fields, "checkpoint_format", "gptq", "gptq", "gptq_v2");
    config.format = format == "gptq" ? CodeFormat::gptq : CodeFormat::gptq_v2;
    config.bits = bits_of(fields, "bits");
    config.name = name_with_bits("GPTQ", config.bits);
    config.group = group_of(fields, "group_size", 128);
    config.symmetric = flag_or(fields, "sym", true);
    config.has_order = flag_or(fields, "desc_act", false);
    one_of(fields, "pack_dtype", "int32", "int32");
    nothing(fields, "is_marlin_format");
    nothing(fields, "dynamic");  // bits and groups of some modules
    return config;
}

QuantizationConfig awq(const Fields &fields) {
    QuantizationConfig config;
    // AutoAWQ's own names are those behind.
    const auto name = [&](const char *usual, const char *own) { return fields.present(own) ? own : usual; };
    const char *const bits = name("bits", "w_bit");
    config.format = CodeFormat::awq;
    config.bits = bits_of(fields, bits);
    if (config.bits != 4) {
        fields.unsupported(bits, "is ", config.bits, "; supported is 4");
    }
    config.name = name_with_bits("AWQ", config.bits);
    config.group = group_of(fields, name("group_size", "q_group_size"), 128);
    config.symmetric = false;
    if (!flag_or(fields, "zero_point", true)) {
        fields.unsupported("zero_point", "is false; supported is true");
    }
    one_of(fields, "version", "gemm", "gemm", "GEMM");
    one_of(fields, "backend", "autoawq", "autoawq");
    return config;
}

/// The only one of the groups of modules. Files with several would need to say which module is of which.
Fields only_group(const Fields &fields) {
    const Fields groups = fields.object("config_groups");
    const auto &all = *fields.find("config_groups")->as<Json::Object>();
    if (all.size() != 1) {
        fields.unsupported("config_groups", "holds ", all.size(), " groups; supported is one");
    }
    return groups.object(all.begin()->first.c_str());
}

QuantizationConfig compressed_tensors(const Fields &fields) {
    QuantizationConfig config;
    const std::string format = one_of(fields, "format", nullptr, "pack-quantized", "int-quantized");
    const bool packed = format == "pack-quantized";
    for (const char *const name : {"kv_cache_scheme", "transform_config"}) {
        nothing(fields, name);
    }
    if (fields.has("sparsity_config")) {
        one_of(fields.object("sparsity_config"), "format", "dense", "dense");
    }
    const Fields group = only_group(fields);
    one_of(group, "format", format.c_str(), format);
    for (const char *const name : {"input_activations", "output_activations"}) {
        nothing(group, name);
    }
    const Fields weights = group.object("weights");
    one_of(weights, "type", "int", "int");
    nothing(weights, "dynamic");
    config.format = packed ? CodeFormat::compressed_tensors : CodeFormat::int8;
    config.bits = bits_of(weights, "num_bits");
    config.name = packed ? name_with_bits("compressed-tensors", config.bits) : "INT8";
    if (one_of(weights, "strategy", nullptr, "channel", "group") == "group") {
        config.group = group_of(weights, "group_size", std::nullopt);
    }
    config.symmetric = flag_or(weights, "symmetric", true);
    if (const Json *const order = weights.find("actorder"); order != nullptr && order->as<bool>() != nullptr) {
        config.has_order = weights.flag("actorder");
    } else {
        const std::string kind = one_of(weights, "actorder", "weight", "weight", "static", "group", "dynamic");
        config.has_order = kind == "group" || kind == "dynamic";
    }
    return config;
}

constexpr std::pair<const char *, QuantizationConfig (*)(const Fields &)> methods[] = {
    {"awq", awq}, {"compressed-tensors", compressed_tensors}, {"gptq", gptq}};

}  // namespace

std::optional<QuantizationConfig> quantization_of(const Fields &root) {
    constexpr const char *name = "quantization_config";
    if (!root.has(name)) {
        return std::nullopt;
    }
    const Fields fields = root.object(name);
    const std::string method = fields.text("quant_method");
    std::string supported;
    for (const auto &[known, read] : methods) {
        if (method == known) {
            return read(fields);
        }
        supported += (supported.empty() ? "" : ", ") + std::string(known);
    }
    fields.unsupported("quant_method", "is ", in_quotes(method), "; supported are ", supported);
}

}  // namespace halyard::models
