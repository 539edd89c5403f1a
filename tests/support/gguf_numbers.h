// What the blocks of a GGUF file stand for.
#ifndef HALYARD_TESTS_SUPPORT_GGUF_NUMBERS_H
#define HALYARD_TESTS_SUPPORT_GGUF_NUMBERS_H

#include <cstdint>
#include <vector>

#include "gguf_formats.h"
#include "halyard/halyard.hpp"

namespace halyard::tests {

/** So many numbers of a format that is quantized, as halyard_dequantize gives them. */
inline std::vector<float> numbers_of(const models::BlockFormat &format, const void *blocks, std::int64_t elements) {
    Codes codes;
    codes.format = static_cast<CodeFormat>(format.codes.value());
    codes.in_features = elements;
    codes.out_features = 1;
    codes.matrix = {static_cast<const std::uint8_t *>(blocks), {1, elements / format.elements * format.bytes}};
    std::vector<float> numbers(static_cast<std::size_t>(elements));
    dequantize(codes, {numbers, {1, elements}});
    return numbers;
}

}  // namespace halyard::tests

#endif
