// The metadata of a GGUF file as a configuration.
#ifndef HALYARD_MODELS_GGUF_CONFIG_H
#define HALYARD_MODELS_GGUF_CONFIG_H

#include <cstdint>
#include <string>
#include <string_view>

#include "gguf.h"

namespace halyard::models {

/// Throws `Error` where metadata is missing or wrong, or asks for what this library lacks.
ModelConfig config_of(const Gguf &file);

/// "llama" and so on; null of an architecture that has no files here.
const char *name_in_gguf(Architecture architecture) noexcept;
/// "llama, qwen2, ..."
std::string architectures_in_gguf();

/// What Llama 3's scaling divides frequency `i` of so many by.
double llama3_factor(const RopeOptions &rope, std::int64_t i, std::int64_t frequencies) noexcept;

/// Llama 3's scaling of the rotation, as a factor for each frequency.
constexpr std::string_view rope_factors_name = "rope_freqs.weight";

}  // namespace halyard::models

#endif
