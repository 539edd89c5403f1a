// What the matrices of a folder become when it is quantized, and quantization_config for that.
#ifndef HALYARD_MODELS_FOLDER_FORMAT_H
#define HALYARD_MODELS_FOLDER_FORMAT_H

#include <optional>
#include <string>

#include "gguf_formats.h"
#include "halyard/quantize.hpp"
#include "json.h"
#include "quantization_config.h"

namespace halyard::models {

/// The options of a folder, checked.
struct FolderFormat {
    /// Refuses formats that are no folder's. `path` is what messages call the folder.
    FolderFormat(const QuantizeOptions &options, const std::filesystem::path &path);

    std::string name;                         ///< "F16", "gptq-4"
    const BlockFormat *floats;                ///< matrices become this; null: codes
    std::optional<QuantizationConfig> codes;  ///< of matrices
    const BlockFormat *scales;                ///< F16, BF16 or F32, of codes
    const BlockFormat *embedding, *output;    ///< null: as the input has them
    bool is_output_coded;                     ///< lm_head becomes codes too
};

/// The field of config.json; `lm_head`: whether that has codes. Each package that defines a method has its own fields:
/// compressed-tensors' QuantizationConfig, GPTQModel's quantize_config, AutoAWQ's.
Json quantization_json(const QuantizationConfig &config, bool lm_head);

/// Whether codes of one are codes of the other.
bool is_same_method(const QuantizationConfig &a, const QuantizationConfig &b) noexcept;

/// Refuses the options that only folders have.
void check_no_folder_options(const QuantizeOptions &options);
/// "F32, F16, ..., gptq-4, ..."
std::string supported_folder_formats();

}  // namespace halyard::models

#endif
