// The fields of config.json as a configuration, wherever they come from.
#ifndef HALYARD_MODELS_CONFIG_H
#define HALYARD_MODELS_CONFIG_H

#include <string>

#include "halyard/model.hpp"
#include "json.h"

namespace halyard::models {

ModelConfig config_of(Json::Object root, const std::string &file, const Fields::Names *names = nullptr);

}  // namespace halyard::models

#endif
