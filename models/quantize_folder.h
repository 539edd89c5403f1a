// A model as a folder of transformers in another format.
#ifndef HALYARD_MODELS_QUANTIZE_FOLDER_H
#define HALYARD_MODELS_QUANTIZE_FOLDER_H

#include <filesystem>
#include <vector>

#include "folder_format.h"
#include "halyard/quantize.hpp"
#include "inventory.h"

namespace halyard::models {

/// quantize_model for an `out` that is a folder, with so many threads. `source` and `inventory` are of `in`.
std::vector<QuantizedTensor> quantize_to_folder(const std::filesystem::path &in, const std::filesystem::path &out,
                                                const Source &source, const Inventory &inventory,
                                                const FolderFormat &format, const QuantizeOptions &options,
                                                int threads);

}  // namespace halyard::models

#endif
