// The tensors of a model and where they come from: a folder with config.json and safetensors, or a GGUF file.
#ifndef HALYARD_MODELS_INVENTORY_H
#define HALYARD_MODELS_INVENTORY_H

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gguf.h"
#include "halyard/model.hpp"
#include "names.h"
#include "quantization_config.h"
#include "stored_tensor.h"

namespace halyard::models {

/// The files of a model, opened, and its configuration.
struct Source {
    explicit Source(const std::filesystem::path &path);

    const std::vector<TensorInfo> &tensors() const { return gguf ? gguf->tensors() : safetensors->tensors(); }
    WeightLayout layout() const { return gguf ? WeightLayout::out_in : layout_of(config.architecture); }
    std::vector<StackPart> stack_parts() const;
    std::vector<BlockPart> block_parts(std::size_t layer) const;
    bool is_ignorable(std::string_view name) const;

    ModelConfig config;
    std::optional<QuantizationConfig> quantization;  // of a folder
    std::optional<SafeTensors> safetensors;          // one of them
    std::optional<Gguf> gguf;
};

/// The tensors of a model, all found and of the right shape. `path` and `source` must outlive it.
class Inventory {
public:
    Inventory(const std::filesystem::path &path, const Source &source);

    const std::vector<StackPart> &stack() const { return stack_; }
    const std::vector<BlockPart> &block(std::size_t layer) const { return blocks_[layer]; }
    std::int64_t total() const { return total_; }

    template<class Weights>
    const StoredTensor &find(const Part<Weights> &part) const {
        return stored_.at(part.name);
    }

    /// Whether a matrix stays quantized where that is asked for: gate and up lie side by side.
    bool can_stay_quantized(const BlockPart &part, std::size_t layer) const;

private:
    void check_embeddings() const;
    void check_unexpected(std::vector<std::string_view> wanted) const;
    void unexpected(const TensorInfo &info) const;

    const Source &source_;
    const TensorFiles files_;
    std::vector<StackPart> stack_;
    std::vector<std::vector<BlockPart>> blocks_;
    std::map<std::string, StoredTensor> stored_;  // by the names of parts
    std::int64_t total_ = 0;
};

}  // namespace halyard::models

#endif
