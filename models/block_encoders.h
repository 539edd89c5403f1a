// Rows of f32 into the blocks of GGUF, the inverse of halyard_dequantize.
#ifndef HALYARD_MODELS_BLOCK_ENCODERS_H
#define HALYARD_MODELS_BLOCK_ENCODERS_H

#include <cstddef>
#include <cstdint>

#include "gguf_formats.h"

namespace halyard::models {

/// Encodes `count` finite values, a multiple of format.elements, into count / format.elements blocks at `to`, an address of
/// any alignment. Each value is rounded to nearest in the steps of its group:
///
///   F16, BF16                ties to even
///   Q8_0, Q4_0               the formulas of halyard_quantization, symmetric with 8 and 4 bits
///   Q5_0                     that of Q4_0 with d = (the first value of the largest magnitude) / -16
///   Q4_1, Q5_1               m = the least value, d = (the largest - m) / 15 or 31
///   Q4_K, Q5_K, Q6_K         scales, and minima of the first two, that a search finds for the least squared error
///
/// Scales that f16 cannot hold make Inf of values; the caller sees them when it decodes. Rounds to nearest if the thread does,
/// as under a DefaultFloatingPoint.
void encode_blocks(const BlockFormat &format, const float *from, std::int64_t count, std::byte *to) noexcept;

/// A group of a matrix: the value of code q is scale * (q - zero).
struct CodedGroup {
    float scale;
    int zero;
};

/// Fills `codes`, 0 .. 2^bits - 1, of `count` finite values that share a scale, by the formulas of halyard_quantization with 4
/// or 8 bits. The codes take no notice of what the scale is rounded to. Rounds as encode_blocks does.
CodedGroup encode_group(const float *from, std::int64_t count, int bits, bool symmetric, std::uint8_t *codes) noexcept;

}  // namespace halyard::models

#endif
