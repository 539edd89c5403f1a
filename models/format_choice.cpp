#include "format_choice.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "fail.h"

namespace halyard::models {

namespace {

constexpr std::string_view embedding_name = "token_embd.weight", output_name = "output.weight",
                           positions_name = "position_embd.weight";

/// What --format takes, what most matrices become, and the number of llama.cpp's llama_ftype.
struct FileFormat {
    std::string_view name, base;
    std::uint32_t type;
};
constexpr FileFormat file_formats[] = {
    {"F32", "F32", 0},    {"F16", "F16", 1},      {"BF16", "BF16", 32},   {"Q8_0", "Q8_0", 7},  {"Q4_0", "Q4_0", 2},
    {"Q4_1", "Q4_1", 3},  {"Q5_0", "Q5_0", 8},    {"Q5_1", "Q5_1", 9},    {"Q4_K", "Q4_K", 14}, {"Q5_K", "Q5_K", 16},
    {"Q6_K", "Q6_K", 18}, {"Q4_K_M", "Q4_K", 15}, {"Q5_K_M", "Q5_K", 17},
};

const BlockFormat *supported_format(const std::string &option, const std::string &name) {
    const BlockFormat *const format = block_format(name);
    if (format == nullptr || format->elements == 0) {
        refuse(option, "is ", in_quotes(name), "; supported are ", supported_block_formats());
    }
    return format;
}

bool ends_with(std::string_view text, std::string_view end) {
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

FormatChoice::FormatChoice(const QuantizeOptions &options, std::int64_t layers, bool tied)
    : options_(options), layers_(layers), tied_(tied), matched_(options.tensors.size()) {
    const auto *const file = std::find_if(std::begin(file_formats), std::end(file_formats),
                                          [&](const FileFormat &each) { return each.name == options.format; });
    if (file == std::end(file_formats)) {
        refuse("format", "is ", in_quotes(options.format), "; supported are ", supported_block_formats(),
               ", Q4_K_M, Q5_K_M");
    }
    base_ = block_format(file->base);
    is_mix_ = file->base != file->name;
    file_type_ = file->type;
    for (const auto &[pattern, name] : options.tensors) {
        of_patterns_.push_back(supported_format("the format of tensors " + in_quotes(pattern), name));
    }
    embedding_ = options.embedding.empty() ? nullptr : supported_format("embedding", options.embedding);
    output_ = options.output.empty() ? nullptr : supported_format("output", options.output);
}

ChosenFormat FormatChoice::of(const std::string &name, const std::vector<std::int64_t> &shape) {
    if (shape.size() < 2 || name == positions_name) {
        const BlockFormat *const f32 = block_format("F32");
        return {f32, f32};
    }
    const BlockFormat *const asked = wanted(name);
    const std::int64_t width = shape.back();
    for (const BlockFormat *const format : {asked, block_format("Q8_0")}) {
        if (width % format->elements == 0) {
            return {asked, format};
        }
    }
    return {asked, block_format("F16")};
}

const BlockFormat *FormatChoice::wanted(const std::string &name) {
    for (std::size_t i = 0; i < of_patterns_.size(); i++) {
        if (fnmatch(options_.tensors[i].first.c_str(), name.c_str(), 0) == 0) {
            matched_[i] = true;
            return of_patterns_[i];
        }
    }
    if (embedding_ != nullptr && name == embedding_name) {
        return embedding_;
    }
    if (output_ != nullptr && name == output_name) {
        return output_;
    }
    return is_mix_ && is_better(name) ? block_format("Q6_K") : base_;
}

/// What a mix keeps in Q6_K: the output projection and, in the first and the last eighth of the layers and in every third between,
/// v and down.
bool FormatChoice::is_better(const std::string &name) const {
    if (name == output_name || (tied_ && name == embedding_name)) {
        return true;
    }
    if (!ends_with(name, ".attn_v.weight") && !ends_with(name, ".ffn_down.weight")) {
        return false;
    }
    const std::int64_t layer = std::atoll(name.c_str() + std::string_view("blk.").size()), eighth = layers_ / 8;
    return layer < eighth || layer >= 7 * layers_ / 8 || (layer - eighth) % 3 == 2;
}

void FormatChoice::check_patterns() const {
    for (std::size_t i = 0; i < matched_.size(); i++) {
        if (!matched_[i]) {
            refuse("tensors", ": the pattern ", in_quotes(options_.tensors[i].first),
                   " matches no matrix, or none that an earlier one leaves");
        }
    }
}

}  // namespace halyard::models
