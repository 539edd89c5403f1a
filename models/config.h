// The fields of config.json as a configuration, wherever they come from.
#ifndef HALYARD_MODELS_CONFIG_H
#define HALYARD_MODELS_CONFIG_H

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "halyard/model.hpp"
#include "json.h"
#include "quantization_config.h"

namespace halyard::models {

/// Factors that scale a rotation are from 1 to this.
constexpr double most_rope_factor = 1e6;

/// The file with the configuration of a model: of a folder config.json or, where there is none, model.gguf; `path` itself
/// if it is no folder.
std::filesystem::path config_file(const std::filesystem::path &path);

/// All that config.json says.
struct FolderConfig {
    ModelConfig model;
    std::optional<QuantizationConfig> quantization;
};
FolderConfig parse_config(std::string_view text, const std::string &file);

ModelConfig config_of(Json::Object root, const std::string &file, const Fields::Names *names = nullptr);

}  // namespace halyard::models

#endif
