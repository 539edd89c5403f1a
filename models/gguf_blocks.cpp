#include "gguf_blocks.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "fail.h"

namespace halyard::models {

namespace {

int u8(std::byte value) {
    return std::to_integer<int>(value);
}

int s8(std::byte value) {
    return static_cast<std::int8_t>(value);
}

int low(std::byte value) {
    return u8(value) & 15;
}

int high(std::byte value) {
    return u8(value) >> 4;
}

/// An f16 as f32, which holds it exactly.
float f16_at(const std::byte *bytes) {
    const auto half = static_cast<std::uint32_t>(u8(bytes[0]) | u8(bytes[1]) << 8);
    const std::uint32_t sign = (half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 0) {  // also where the processor flushes denormals
        return (sign != 0 ? -0x1p-24f : 0x1p-24f) * static_cast<float>(fraction);
    }
    const std::uint32_t bits = sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
    float value = 0;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
}

// ---- Blocks of 32: code j of the first half is the low nibble of byte j, of the second half the high one ----

/// d, s8 codes.
void q8_0(const std::byte *block, float *values) {
    const float d = f16_at(block);
    for (int j = 0; j < 32; j++) {
        values[j] = d * static_cast<float>(s8(block[2 + j]));
    }
}

/// d, nibbles.
void q4_0(const std::byte *block, float *values) {
    const float d = f16_at(block);
    const std::byte *const codes = block + 2;
    for (int j = 0; j < 16; j++) {
        values[j] = d * static_cast<float>(low(codes[j]) - 8);
        values[j + 16] = d * static_cast<float>(high(codes[j]) - 8);
    }
}

/// d, minimum, nibbles.
void q4_1(const std::byte *block, float *values) {
    const float d = f16_at(block), minimum = f16_at(block + 2);
    const std::byte *const codes = block + 4;
    for (int j = 0; j < 16; j++) {
        values[j] = d * static_cast<float>(low(codes[j])) + minimum;
        values[j + 16] = d * static_cast<float>(high(codes[j])) + minimum;
    }
}

/// 16 where the fifth bit of code j is set: bit j of four bytes.
int fifth(const std::byte *bits, int j) {
    return (u8(bits[j / 8]) >> j % 8 & 1) << 4;
}

/// d, fifth bits, nibbles.
void q5_0(const std::byte *block, float *values) {
    const float d = f16_at(block);
    const std::byte *const bits = block + 2, *const codes = block + 6;
    for (int j = 0; j < 16; j++) {
        values[j] = d * static_cast<float>((low(codes[j]) | fifth(bits, j)) - 16);
        values[j + 16] = d * static_cast<float>((high(codes[j]) | fifth(bits, j + 16)) - 16);
    }
}

/// d, minimum, fifth bits, nibbles.
void q5_1(const std::byte *block, float *values) {
    const float d = f16_at(block), minimum = f16_at(block + 2);
    const std::byte *const bits = block + 4, *const codes = block + 8;
    for (int j = 0; j < 16; j++) {
        values[j] = d * static_cast<float>(low(codes[j]) | fifth(bits, j)) + minimum;
        values[j + 16] = d * static_cast<float>(high(codes[j]) | fifth(bits, j + 16)) + minimum;
    }
}

// ---- Blocks of 256: a scale, and scales of it for sub-blocks ----

/// Of the eight sub-blocks of 32: d times its 6-bit scale, dmin times its 6-bit minimum.
struct SubBlock {
    SubBlock(const std::byte *block, int i) {
        const std::byte *const s = block + 4;
        const int scale = i < 4 ? u8(s[i]) & 63 : low(s[i + 4]) | u8(s[i - 4]) >> 6 << 4;
        const int least = i < 4 ? u8(s[i + 4]) & 63 : high(s[i + 4]) | u8(s[i]) >> 6 << 4;
        d = f16_at(block) * static_cast<float>(scale);
        minimum = f16_at(block + 2) * static_cast<float>(least);
    }
    float operator()(int code) const { return d * static_cast<float>(code) - minimum; }

    float d, minimum;
};

/// d, dmin, 12 bytes of scales and minima, nibbles: of 32 bytes first all low ones, then all high ones.
void q4_k(const std::byte *block, float *values) {
    const std::byte *const codes = block + 16;
    for (int pair = 0; pair < 4; pair++) {
        const SubBlock first(block, 2 * pair), second(block, 2 * pair + 1);
        for (int j = 0; j < 32; j++) {
            values[64 * pair + j] = first(low(codes[32 * pair + j]));
            values[64 * pair + 32 + j] = second(high(codes[32 * pair + j]));
        }
    }
}

/// The same with fifth bits before the nibbles: bit i of byte j belongs to code j of sub-block i.
void q5_k(const std::byte *block, float *values) {
    const std::byte *const bits = block + 16, *const codes = block + 48;
    for (int pair = 0; pair < 4; pair++) {
        const SubBlock first(block, 2 * pair), second(block, 2 * pair + 1);
        for (int j = 0; j < 32; j++) {
            const int both = u8(bits[j]) >> 2 * pair;
            values[64 * pair + j] = first(low(codes[32 * pair + j]) | (both & 1) << 4);
            values[64 * pair + 32 + j] = second(high(codes[32 * pair + j]) | (both >> 1 & 1) << 4);
        }
    }
}

/// 128 bytes of low nibbles, 64 of upper pairs of bits, an s8 scale for each 16 codes, d. Halves of 128 codes, in each
/// of which nibbles and pairs lie in quarters of 32.
void q6_k(const std::byte *block, float *values) {
    const float d = f16_at(block + 208);
    for (int half = 0; half < 2; half++) {
        const std::byte *const nibbles = block + 64 * half, *const pairs = block + 128 + 32 * half;
        for (int quarter = 0; quarter < 4; quarter++) {
            for (int j = 0; j < 32; j++) {
                const std::byte both = nibbles[32 * (quarter % 2) + j];
                const int code = (quarter < 2 ? low(both) : high(both)) | (u8(pairs[j]) >> 2 * quarter & 3) << 4;
                const int scale = s8(block[192 + 8 * half + 2 * quarter + j / 16]);
                values[128 * half + 32 * quarter + j] = d * static_cast<float>(scale) * static_cast<float>(code - 32);
            }
        }
    }
}

constexpr BlockFormat formats[] = {
    {0, "F32", 1, 4, nullptr},      {1, "F16", 1, 2, nullptr},      {30, "BF16", 1, 2, nullptr},
    {8, "Q8_0", 32, 34, q8_0},      {2, "Q4_0", 32, 18, q4_0},      {3, "Q4_1", 32, 20, q4_1},
    {6, "Q5_0", 32, 22, q5_0},      {7, "Q5_1", 32, 24, q5_1},      {12, "Q4_K", 256, 144, q4_k},
    {13, "Q5_K", 256, 176, q5_k},   {14, "Q6_K", 256, 210, q6_k},

    {9, "Q8_1", 0, 0, nullptr},     {10, "Q2_K", 0, 0, nullptr},    {11, "Q3_K", 0, 0, nullptr},
    {15, "Q8_K", 0, 0, nullptr},    {16, "IQ2_XXS", 0, 0, nullptr}, {17, "IQ2_XS", 0, 0, nullptr},
    {18, "IQ3_XXS", 0, 0, nullptr}, {19, "IQ1_S", 0, 0, nullptr},   {20, "IQ4_NL", 0, 0, nullptr},
    {21, "IQ3_S", 0, 0, nullptr},   {22, "IQ2_S", 0, 0, nullptr},   {23, "IQ4_XS", 0, 0, nullptr},
    {24, "I8", 0, 0, nullptr},      {25, "I16", 0, 0, nullptr},     {26, "I32", 0, 0, nullptr},
    {27, "I64", 0, 0, nullptr},     {28, "F64", 0, 0, nullptr},     {29, "IQ1_M", 0, 0, nullptr},
    {34, "TQ1_0", 0, 0, nullptr},   {35, "TQ2_0", 0, 0, nullptr},   {39, "MXFP4", 0, 0, nullptr},
    {40, "NVFP4", 0, 0, nullptr},   {41, "Q1_0", 0, 0, nullptr},
};

}  // namespace

const BlockFormat *block_format(std::uint32_t type) noexcept {
    const auto *const at = std::find_if(std::begin(formats), std::end(formats),
                                        [&](const BlockFormat &format) { return format.type == type; });
    return at != std::end(formats) ? at : nullptr;
}

const BlockFormat *block_format(std::string_view name) noexcept {
    const auto *const at = std::find_if(std::begin(formats), std::end(formats),
                                        [&](const BlockFormat &format) { return format.name == name; });
    return at != std::end(formats) ? at : nullptr;
}

std::string supported_block_formats() {
    std::string names;
    for (const BlockFormat &format : formats) {
        if (format.elements > 0) {
            names.append(names.empty() ? "" : ", ").append(format.name);
        }
    }
    return names;
}

void dequantize(const BlockFormat &format, const std::byte *blocks, std::int64_t elements, float *values) {
    if (elements % format.elements != 0) {
        throw Error(HALYARD_INVALID_ARGUMENT, sentence(elements, " elements are no whole blocks of ", format.name,
                                                       ", which have ", format.elements, " each")
                                                  .c_str());
    }
    for (std::int64_t done = 0; done < elements; done += format.elements) {
        format.dequantize(blocks, values + done);
        blocks += format.bytes;
    }
}

}  // namespace halyard::models
