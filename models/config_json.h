// A configuration as config.json of transformers, the inverse of config.h.
#ifndef HALYARD_MODELS_CONFIG_JSON_H
#define HALYARD_MODELS_CONFIG_JSON_H

#include <filesystem>

#include "halyard/model.hpp"
#include "json.h"

namespace halyard::models {

/// The fields of a decoder whose configuration is a GGUF file's. Refuses one that does not come back when the fields are read
/// again; `path` is what messages call the model.
Json::Object config_json(const ModelConfig &config, const std::filesystem::path &path);

}  // namespace halyard::models

#endif
