#include "folder_format.h"

#include <algorithm>
#include <iterator>

#include "fail.h"

namespace halyard::models {

namespace {

struct CodedFormat {
    std::string_view name;
    CodeFormat format;
    int bits;
};
constexpr CodedFormat coded_formats[] = {
    {"compressed-tensors-4", CodeFormat::compressed_tensors, 4},
    {"compressed-tensors-8", CodeFormat::compressed_tensors, 8},
    {"int8", CodeFormat::int8, 8},
    {"gptq-4", CodeFormat::gptq, 4},
    {"gptq-8", CodeFormat::gptq, 8},
    {"gptq_v2-4", CodeFormat::gptq_v2, 4},
    {"gptq_v2-8", CodeFormat::gptq_v2, 8},
    {"awq-4", CodeFormat::awq, 4},
};
constexpr std::string_view float_names[] = {"F32", "F16", "BF16"};

/// Null if it is none.
const BlockFormat *float_format(const std::string &name) {
    return std::find(std::begin(float_names), std::end(float_names), name) != std::end(float_names)
               ? block_format(std::string_view(name))
               : nullptr;
}

const BlockFormat *required_floats(const char *option, const std::string &name, const char *more = "") {
    const BlockFormat *const format = float_format(name);
    if (format == nullptr) {
        refuse(option, "is ", in_quotes(name), "; supported in a folder are F32, F16, BF16", more);
    }
    return format;
}

std::int64_t checked_group(std::int64_t group) {
    constexpr std::int64_t most = (std::int64_t{1} << 31) - 1;
    if (group < -1 || group > most || (group > 0 && group % 16 != 0)) {
        refuse("group", "is ", group, "; supported are multiples of 16, and 0 or -1 for all inputs");
    }
    return std::max(group, std::int64_t{0});
}

/// The numbers of a configuration as JSON has them.
Json bits_json(const QuantizationConfig &config) {
    return {static_cast<std::uint64_t>(config.bits)};
}
Json group_json(const QuantizationConfig &config) {
    Json json{std::int64_t{-1}};  // all inputs
    if (config.group != 0) {
        json.value = static_cast<std::uint64_t>(config.group);
    }
    return json;
}
/// The modules without codes, where that is said at all.
Json::Array left_out(bool lm_head) {
    return lm_head ? Json::Array() : Json::Array{{std::string("lm_head")}};
}

Json::Object gptq_json(const QuantizationConfig &config, bool lm_head) {
    return {{"quant_method", {std::string("gptq")}},
            {"bits", bits_json(config)},
            {"group_size", group_json(config)},
            {"sym", {config.symmetric}},
            {"desc_act", {config.has_order}},
            {"checkpoint_format", {std::string(config.format == CodeFormat::gptq ? "gptq" : "gptq_v2")}},
            {"pack_dtype", {std::string("int32")}},
            {"lm_head", {lm_head}}};
}

Json::Object awq_json(const QuantizationConfig &config, bool lm_head) {
    return {{"quant_method", {std::string("awq")}}, {"bits", bits_json(config)},
            {"group_size", group_json(config)},     {"zero_point", {true}},
            {"version", {std::string("gemm")}},     {"modules_to_not_convert", {left_out(lm_head)}}};
}

Json::Object compressed_json(const QuantizationConfig &config, bool lm_head) {
    Json::Object weights{{"num_bits", bits_json(config)},
                         {"type", {std::string("int")}},
                         {"symmetric", {config.symmetric}},
                         {"strategy", {std::string(config.group == 0 ? "channel" : "group")}},
                         {"group_size", {}},
                         {"actorder", {}},
                         {"dynamic", {false}}};
    if (config.group != 0) {
        weights["group_size"] = group_json(config);
    }
    if (config.has_order) {
        weights["actorder"].value = std::string("group");
    }
    const std::string format = config.format == CodeFormat::int8 ? "int-quantized" : "pack-quantized";
    Json::Object group{{"format", {format}},
                       {"targets", {Json::Array{{std::string("Linear")}}}},
                       {"weights", {std::move(weights)}},
                       {"input_activations", {}},
                       {"output_activations", {}}};
    return {{"quant_method", {std::string("compressed-tensors")}},
            {"format", {format}},
            {"quantization_status", {std::string("compressed")}},
            {"config_groups", {Json::Object{{"group_0", {std::move(group)}}}}},
            {"ignore", {left_out(lm_head)}}};
}

}  // namespace

FolderFormat::FolderFormat(const QuantizeOptions &options, const std::filesystem::path &path)
    : name(options.format), floats(float_format(options.format)), scales(required_floats("scales", options.scales)) {
    const auto *const coded = std::find_if(std::begin(coded_formats), std::end(coded_formats),
                                           [&](const CodedFormat &each) { return each.name == name; });
    if (floats == nullptr && coded == std::end(coded_formats)) {
        refuse("format", "is ", in_quotes(name), ", and ", path.string(),
               ", which does not end in .gguf, becomes a folder; supported there are ", supported_folder_formats());
    }
    if (!options.tensors.empty()) {
        refuse("tensors", ": patterns are for GGUF files; a folder has one format of matrices");
    }
    if (floats == nullptr) {
        QuantizationConfig config;
        config.format = coded->format;
        config.bits = coded->bits;
        config.group = checked_group(options.group);
        config.symmetric = !options.asymmetric && coded->format != CodeFormat::awq;
        Json::Object root{{"quantization_config", quantization_json(config, false)}};
        codes = quantization_of(Fields(root, path));  // with its name
    }
    is_output_coded = codes && options.output == name;
    const std::string more = codes ? ", " + name : "";
    embedding = options.embedding.empty() ? floats : required_floats("embedding", options.embedding);
    output =
        options.output.empty() || is_output_coded ? floats : required_floats("output", options.output, more.c_str());
}

Json quantization_json(const QuantizationConfig &config, bool lm_head) {
    switch (config.format) {
    case CodeFormat::gptq:
    case CodeFormat::gptq_v2:
        return {gptq_json(config, lm_head)};
    case CodeFormat::awq:
        return {awq_json(config, lm_head)};
    default:
        return {compressed_json(config, lm_head)};
    }
}

bool is_same_method(const QuantizationConfig &a, const QuantizationConfig &b) noexcept {
    return a.format == b.format && a.bits == b.bits && a.group == b.group && a.symmetric == b.symmetric;
}

void check_no_folder_options(const QuantizeOptions &options) {
    const QuantizeOptions usual;
    if (options.group != usual.group || options.asymmetric != usual.asymmetric || options.scales != usual.scales) {
        refuse("group", ", asymmetric and scales are for folders; formats of GGUF have their own");
    }
}

std::string supported_folder_formats() {
    std::string names;
    for (const std::string_view name : float_names) {
        names += (names.empty() ? "" : ", ") + std::string(name);
    }
    for (const CodedFormat &format : coded_formats) {
        names += ", " + std::string(format.name);
    }
    return names;
}

}  // namespace halyard::models
