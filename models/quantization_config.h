// quantization_config of config.json: how the matrices of a folder are quantized. Which of them are, their tensors say, so lists of
// modules are not looked at.
#ifndef HALYARD_MODELS_QUANTIZATION_CONFIG_H
#define HALYARD_MODELS_QUANTIZATION_CONFIG_H

#include <cstdint>
#include <optional>
#include <string>

#include "halyard/halyard.hpp"
#include "json.h"

namespace halyard::models {

/// How matrices lie in several tensors each.
struct QuantizationConfig {
    CodeFormat format = CodeFormat::int8;
    std::string name;        ///< "GPTQ 4 bits"
    int bits = 8;            ///< of a code
    std::int64_t group = 0;  ///< inputs that share a scale; 0: all of them
    bool symmetric = true;   ///< zeros are in the middle of the codes
    bool has_order = false;  ///< a tensor must say the group of each input; else it may
};

/// The field of a whole config.json; none where it is absent. Throws `Error` where it asks for what is not supported.
std::optional<QuantizationConfig> quantization_of(const Fields &root);

}  // namespace halyard::models

#endif
