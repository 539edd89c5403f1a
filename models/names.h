// Which tensors the files of an architecture hold, under which names and in which shapes.
#ifndef HALYARD_MODELS_NAMES_H
#define HALYARD_MODELS_NAMES_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "halyard/model.hpp"

namespace halyard::models {

/// A tensor that a model needs, and which argument it becomes.
template<class Weights>
struct Part {
    ConstTensor Weights::*argument;
    std::string name;
    std::vector<std::int64_t> shape;
    /// Not 0: rows are those of so many heads, in each of which rows of its first and its second half take turns.
    std::int64_t interleaved_heads = 0;
};
using BlockPart = Part<BlockWeights>;
using StackPart = Part<StackWeights>;

/// What comes before every name but lm_head's: files of a whole model have "transformer.", "model." or "bert.", files of the
/// part without lm_head have nothing.
std::string prefix_of(const ModelConfig &config, const SafeTensors &files);
/// That of a whole model.
const char *prefix_of(Architecture architecture) noexcept;

/// A tensor's name as the files have it: old ones of BERT have TensorFlow's names of the vectors of norms, gamma and beta.
std::string name_in(const SafeTensors &files, const std::string &name);

std::vector<StackPart> stack_parts(const ModelConfig &config, const std::string &prefix);
std::vector<BlockPart> block_parts(const ModelConfig &config, const std::string &prefix, std::size_t layer);
WeightLayout layout_of(Architecture architecture) noexcept;

/// Llama and Mistral, which GGUF does not tell apart.
bool is_llama(Architecture architecture) noexcept;

/// The tensors as GGUF files have them: matrices are [out, in], and rows of q and k of Llama lie as an interleaved
/// rotation wants them.
std::vector<StackPart> in_gguf(std::vector<StackPart> parts);
std::vector<BlockPart> in_gguf(const ModelConfig &config, std::vector<BlockPart> parts, std::size_t layer);

constexpr std::string_view lm_head_name = "lm_head.weight";

/// Tables that old versions of transformers saved beside the weights, and that follow from the configuration; and what
/// BERT has behind its encoder.
bool is_ignorable(Architecture architecture, std::string_view name) noexcept;

}  // namespace halyard::models

#endif
