// A configuration as the metadata of a GGUF file, the inverse of gguf_config.h.
#ifndef HALYARD_MODELS_GGUF_METADATA_H
#define HALYARD_MODELS_GGUF_METADATA_H

#include <filesystem>
#include <vector>

#include "gguf_writer.h"
#include "halyard/model.hpp"

namespace halyard::models {

/// In llama.cpp's keys. Refuses architectures that GGUF files have no names for here; `path` is what messages call the model.
GgufMetadata metadata_of(const ModelConfig &config, const std::filesystem::path &path);

/// Llama 3's scaling of the rotation as the tensor rope_factors_name has it, [head_dim / 2]; empty if there is none.
std::vector<float> rope_factors_of(const ModelConfig &config);

/// Refuses a configuration that `where`, "the metadata of GGUF", cannot express: `read` is what became of it.
void check_expressed(const ModelConfig &config, const ModelConfig &read, const std::filesystem::path &path,
                     const char *where);

}  // namespace halyard::models

#endif
