// What the blocks of a GGUF file stand for.
#ifndef HALYARD_TESTS_SUPPORT_GGUF_NUMBERS_H
#define HALYARD_TESTS_SUPPORT_GGUF_NUMBERS_H

#include <cstdint>
#include <random>
#include <string>
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

/** Random blocks with small scales. */
inline std::string random_blocks(const models::BlockFormat &format, std::size_t elements, std::mt19937_64 &random) {
    std::string blocks(elements / static_cast<std::size_t>(format.elements) * static_cast<std::size_t>(format.bytes),
                       '\0');
    for (char &each : blocks) {
        each = static_cast<char>(random());
    }
    const auto size = static_cast<std::size_t>(format.bytes);
    for (std::size_t block = 0; block < blocks.size(); block += size) {
        for (const std::size_t high : {std::size_t{1}, std::size_t{3}, size - 1}) {
            blocks[block + high] = 0x0c;  // of an f16 between 2^-12 and 2^-11
        }
    }
    return blocks;
}

}  // namespace halyard::tests

#endif
