// The metadata of a GGUF file as a configuration.
#ifndef HALYARD_MODELS_GGUF_CONFIG_H
#define HALYARD_MODELS_GGUF_CONFIG_H

#include <string_view>

#include "gguf.h"

namespace halyard::models {

/// Throws `Error` where metadata is missing or wrong, or asks for what this library lacks.
ModelConfig config_of(const Gguf &file);

/// Llama 3's scaling of the rotation, as a factor for each frequency.
constexpr std::string_view rope_factors_name = "rope_freqs.weight";

}  // namespace halyard::models

#endif
