// The element formats of tensors in GGUF files. Quantized ones consist of blocks: some codes, and the scales that turn
// them into numbers.
#ifndef HALYARD_MODELS_GGUF_BLOCKS_H
#define HALYARD_MODELS_GGUF_BLOCKS_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace halyard::models {

struct BlockFormat {
    std::uint32_t type;     ///< the number that stands for it in a file
    std::string_view name;  ///< "Q4_K"; "F32", "F16" and "BF16" are blocks of one element
    std::int64_t elements;  ///< of a block; 0: a format that is not supported
    std::int64_t bytes;     ///< of a block
    /// The numbers that one block stands for, made by the operations of ggml's dequantize_row_* in f32, each rounded
    /// once. Null for formats that are not quantized.
    void (*dequantize)(const std::byte *block, float *values);
};

/// Null for a number or a name that is unknown.
const BlockFormat *block_format(std::uint32_t type) noexcept;
const BlockFormat *block_format(std::string_view name) noexcept;
/// "F32, F16, ..."
std::string supported_block_formats();

/// `elements` numbers of a quantized format. Throws `Error` where they are no whole blocks.
void dequantize(const BlockFormat &format, const std::byte *blocks, std::int64_t elements, float *values);

}  // namespace halyard::models

#endif
