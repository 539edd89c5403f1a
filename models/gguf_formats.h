// The element formats of tensors in GGUF files: their numbers in a file, names and sizes.
#ifndef HALYARD_MODELS_GGUF_FORMATS_H
#define HALYARD_MODELS_GGUF_FORMATS_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "halyard/halyard.h"

namespace halyard::models {

struct BlockFormat {
    std::uint32_t type;                             ///< the number that stands for it in a file
    std::string_view name;                          ///< "Q4_K"; "F32", "F16" and "BF16" are blocks of one element
    std::int64_t elements = 0;                      ///< of a block; 0: a format that is not supported
    std::int64_t bytes = 0;                         ///< of a block
    std::optional<halyard_code_format> codes = {};  ///< none of formats that are not quantized
};

/// Null for a number or a name that is unknown.
const BlockFormat *block_format(std::uint32_t type) noexcept;
const BlockFormat *block_format(std::string_view name) noexcept;
/// "F32, F16, ..."
std::string supported_block_formats();

}  // namespace halyard::models

#endif
