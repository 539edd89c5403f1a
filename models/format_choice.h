// Which format each tensor of a model gets when it is quantized.
#ifndef HALYARD_MODELS_FORMAT_CHOICE_H
#define HALYARD_MODELS_FORMAT_CHOICE_H

#include <cstdint>
#include <string>
#include <vector>

#include "gguf_formats.h"
#include "halyard/quantize.hpp"

namespace halyard::models {

struct ChosenFormat {
    const BlockFormat *wanted;
    const BlockFormat *format;  ///< another one where rows are no whole blocks of `wanted`
};

/// The rules of `QuantizeOptions`, which must outlive it.
class FormatChoice {
public:
    /// Refuses formats that are unknown. `tied`: the embedding is the output projection too.
    FormatChoice(const QuantizeOptions &options, std::int64_t layers, bool tied);

    /// What a tensor gets, by its name in GGUF.
    ChosenFormat of(const std::string &name, const std::vector<std::int64_t> &shape);
    /// Refuses patterns that no matrix has matched.
    void check_patterns() const;
    /// general.file_type, as llama.cpp numbers it.
    std::uint32_t file_type() const noexcept { return file_type_; }

private:
    const BlockFormat *wanted(const std::string &name);
    bool is_better(const std::string &name) const;

    const QuantizeOptions &options_;
    const std::int64_t layers_;
    const bool tied_;
    bool is_mix_ = false;
    std::uint32_t file_type_ = 0;
    const BlockFormat *base_ = nullptr, *embedding_ = nullptr, *output_ = nullptr;
    std::vector<const BlockFormat *> of_patterns_;
    std::vector<bool> matched_;
};

}  // namespace halyard::models

#endif
