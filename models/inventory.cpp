#include "inventory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "config.h"
#include "fail.h"
#include "gguf_config.h"
#include "mapped_file.h"

namespace halyard::models {

namespace {

std::string prefix_in(const Source &source) {
    return source.gguf ? "" : prefix_of(source.config, *source.safetensors);
}

template<class Parts>
Parts in_safetensors(const SafeTensors &files, Parts parts) {
    for (auto &part : parts) {
        part.name = name_in(files, part.name);
    }
    return parts;
}

}  // namespace

Source::Source(const std::filesystem::path &path) {
    const std::filesystem::path file = config_file(path);
    if (file == path && path.filename() == "config.json") {
        refuse(path, "is no GGUF file, but one file of a model: give the folder that holds it");
    }
    if (file == path || file.extension() == ".gguf") {
        gguf.emplace(Gguf::open(file));
        config = config_of(*gguf);
    } else {
        FolderConfig folder = parse_config(MappedFile(file).text(), file.string());
        config = std::move(folder.model);
        quantization = std::move(folder.quantization);
        safetensors.emplace(SafeTensors::open(path));
    }
}

std::vector<StackPart> Source::stack_parts() const {
    std::vector<StackPart> parts = models::stack_parts(config, prefix_in(*this));
    return gguf ? in_gguf(std::move(parts)) : in_safetensors(*safetensors, std::move(parts));
}

std::vector<BlockPart> Source::block_parts(std::size_t layer) const {
    std::vector<BlockPart> parts = models::block_parts(config, prefix_in(*this), layer);
    return gguf ? in_gguf(config, std::move(parts), layer) : in_safetensors(*safetensors, std::move(parts));
}

bool Source::is_ignorable(std::string_view name) const {
    return gguf ? name == rope_factors_name && is_llama(config.architecture)
                : models::is_ignorable(config.architecture, name);
}

Inventory::Inventory(const std::filesystem::path &path, const Source &source)
    : source_(source), files_{path, source.tensors(), source.quantization ? &*source.quantization : nullptr} {
    stack_ = source.stack_parts();
    for (std::size_t layer = 0; layer < source.config.blocks.size(); layer++) {
        blocks_.push_back(source.block_parts(layer));
    }
    std::vector<std::string_view> wanted;
    const auto require = [&](const auto &parts) {
        for (const auto &part : parts) {
            const StoredTensor &stored = stored_[part.name] = find_stored(files_, part.name, part.shape);
            total_ += stored.bytes();
            stored.each_tensor([&](const TensorInfo &info) { wanted.push_back(info.name); });
        }
    };
    require(stack_);
    check_embeddings();
    for (const auto &block : blocks_) {
        require(block);
    }
    check_unexpected(std::move(wanted));
}

bool Inventory::can_stay_quantized(const BlockPart &part, std::size_t layer) const {
    const StoredTensor &stored = find(part);
    if (part.shape.size() != 2 || stored.dtype) {
        return false;
    }
    const bool is_gate = part.argument == &BlockWeights::gate_proj;
    for (const BlockPart &other : block(layer)) {
        const bool is_beside = (is_gate && other.argument == &BlockWeights::up_proj) ||
                               (part.argument == &BlockWeights::up_proj && other.argument == &BlockWeights::gate_proj);
        if (is_beside && !stored.fits_beside(find(other))) {
            return false;
        }
    }
    return true;
}

/// Rows of blocks alone are dequantized one by one.
void Inventory::check_embeddings() const {
    for (const StackPart &part : stack_) {
        const StoredTensor &stored = find(part);
        if (stored.codes != nullptr && part.argument != &StackWeights::lm_head) {
            unsupported(stored.tensor->file, ": tensor ", in_quotes(stored.tensor->name),
                        " is a quantized embedding; supported are embeddings in F32, F16 and BF16, or in the "
                        "formats of GGUF files");
        }
    }
}

void Inventory::check_unexpected(std::vector<std::string_view> wanted) const {
    std::sort(wanted.begin(), wanted.end());
    for (const TensorInfo &info : source_.tensors()) {
        if (!std::binary_search(wanted.begin(), wanted.end(), std::string_view(info.name)) &&
            !source_.is_ignorable(info.name) && !is_bias_of_zeros(files_, info)) {
            unexpected(info);
        }
    }
}

/// A tied lm_head may be in a folder's files as well, if it is the embedding.
void Inventory::unexpected(const TensorInfo &info) const {
    const ModelConfig &config = source_.config;
    if (source_.gguf || info.name != lm_head_name || !config.tie_word_embeddings) {
        refuse(info.file, ": tensor ", in_quotes(info.name), " is not part of ", to_string(config.architecture),
               source_.gguf ? " with this metadata" : " with this config.json");
    }
    const TensorInfo &embedding = *find(stack_.front()).tensor;
    if (info.dtype != embedding.dtype || info.shape != embedding.shape ||
        std::memcmp(info.data, embedding.data, static_cast<std::size_t>(info.bytes)) != 0) {
        refuse(info.file, ": tensor ", in_quotes(info.name), " differs from ", in_quotes(embedding.name),
               ", and config.json says tie_word_embeddings");
    }
    let_go(info);
    let_go(embedding);
}

}  // namespace halyard::models
