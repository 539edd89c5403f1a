// The encoders of blocks. Layouts: ggml's src/ggml-common.h, as runtime/core/code_formats.cpp reads them. Blocks of 32 values
// follow closed formulas. Blocks of 256 values have scales of two levels, which are searched.
#include "block_encoders.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace halyard::models {

namespace {

// ---- Numbers of 16 bits ----

std::uint32_t bits_of(float value) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

float float_of(std::uint32_t bits) {
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

/// Rounds to the nearest f16, ties to even.
std::uint16_t to_f16(float value) {
    constexpr std::uint32_t infinity = 0x7c00, bias_difference = 112 << 10;
    const std::uint32_t sign = bits_of(value) >> 16 & 0x8000;
    const float magnitude = std::fabs(value);
    if (magnitude < 0x1p-14f) {  // f32 at 0.5 has the steps of the denormals of f16
        return static_cast<std::uint16_t>(sign | (bits_of(magnitude + 0.5f) - bits_of(0.5f)));
    }
    const std::uint32_t bits = bits_of(magnitude), rounded = bits + 0xfff + (bits >> 13 & 1);
    return static_cast<std::uint16_t>(sign | std::min((rounded >> 13) - bias_difference, infinity));
}

std::uint16_t to_bf16(float value) {
    const std::uint32_t bits = bits_of(value);
    return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float from_f16(std::uint16_t half) {
    const float magnitude = float_of((half & 0x7fffu) << 13) * 0x1p112f;
    return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

void write_16(std::uint16_t bits, std::uint8_t *to) {
    std::memcpy(to, &bits, sizeof bits);
}

/// Writes a scale and returns what was written.
float write_f16(float value, std::uint8_t *to) {
    const std::uint16_t half = to_f16(value);
    write_16(half, to);
    return from_f16(half);
}

// ---- Blocks of 32 values ----

constexpr int small_block = 32;
constexpr float least_scale = 0x1p-126f;

/// The reciprocal of a scale; 0 where there is no scale to speak of.
float inverse(float scale) {
    return std::fabs(scale) < least_scale ? 0 : 1 / scale;
}

float of_largest_magnitude(const float *x, std::int64_t count) {
    return *std::max_element(x, x + count, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
}

/// 8 bits: codes around 128, of at most 127 steps.
inline CodedGroup encode_8_bits(const float *x, std::int64_t count, std::uint8_t *codes) {
    const float scale = std::fabs(of_largest_magnitude(x, count)) / 127, reciprocal = inverse(scale);
    for (std::int64_t i = 0; i < count; i++) {
        codes[i] = static_cast<std::uint8_t>(static_cast<int>(std::round(x[i] * reciprocal)) + 128);
    }
    return {reciprocal == 0 ? 0 : scale, 128};
}

/// 4 and 5 bits: codes around the middle, of which the largest magnitude is the least.
template<int bits>
inline CodedGroup encode_around_middle(const float *x, std::int64_t count, std::uint8_t *codes) {
    constexpr int middle = 1 << (bits - 1), most = 2 * middle - 1;
    const float scale = of_largest_magnitude(x, count) / -middle, reciprocal = inverse(scale);
    for (std::int64_t i = 0; i < count; i++) {
        const int code = static_cast<int>(x[i] * reciprocal + (middle + 0.5f));
        codes[i] = static_cast<std::uint8_t>(std::min(code, most));
    }
    return {reciprocal == 0 ? 0 : scale, middle};
}

/// Codes from the least value or 0 to the largest or 0.
CodedGroup encode_with_zero(const float *x, std::int64_t count, int bits, std::uint8_t *codes) {
    const auto [least, largest] = std::minmax_element(x, x + count);
    const int most = (1 << bits) - 1;
    const float low = std::min(*least, 0.0f), high = std::max(*largest, 0.0f),
                scale = (high - low) / static_cast<float>(most), reciprocal = inverse(scale);
    const int zero = std::min(static_cast<int>(std::round(-low * reciprocal)), most);
    for (std::int64_t i = 0; i < count; i++) {
        const int code = static_cast<int>(std::round(x[i] * reciprocal)) + zero;
        codes[i] = static_cast<std::uint8_t>(std::clamp(code, 0, most));
    }
    return {reciprocal == 0 ? 0 : scale, zero};
}

void encode_q8_0(const float *x, std::uint8_t *to) {
    write_f16(encode_8_bits(x, small_block, to + 2).scale, to);
    for (int i = 0; i < small_block; i++) {
        to[2 + i] ^= 128;
    }
}

/// Codes 0 .. 15 and, where there are fifth bits, 0 .. 31: byte i has the low bits of values i and 16 + i.
void write_codes(const std::uint8_t (&codes)[small_block], std::uint8_t *fifth_bits, std::uint8_t *low) {
    std::uint32_t fifth = 0;
    for (int i = 0; i < small_block / 2; i++) {
        low[i] = static_cast<std::uint8_t>((codes[i] & 15) | (codes[i + small_block / 2] & 15) << 4);
    }
    for (int i = 0; i < small_block; i++) {
        fifth |= static_cast<std::uint32_t>(codes[i] >> 4) << i;
    }
    if (fifth_bits != nullptr) {
        std::memcpy(fifth_bits, &fifth, sizeof fifth);
    }
}

/// Q4_0 and Q5_0: d, fifth bits, codes around the middle.
template<int bits>
void encode_symmetric(const float *x, std::uint8_t *to) {
    std::uint8_t codes[small_block];
    write_f16(encode_around_middle<bits>(x, small_block, codes).scale, to);
    write_codes(codes, bits == 5 ? to + 2 : nullptr, to + (bits == 5 ? 6 : 2));
}

/// Q4_1 and Q5_1: d, m, fifth bits, codes from the minimum on.
template<int bits>
void encode_with_minimum(const float *x, std::uint8_t *to) {
    constexpr int most = (1 << bits) - 1;
    const auto [least, largest] = std::minmax_element(x, x + small_block);
    // Halves: the difference of the two ends of f32 is too large for it.
    const float scale = (*largest / 2 - *least / 2) / most * 2, reciprocal = inverse(scale);
    write_f16(reciprocal == 0 ? 0 : scale, to);
    write_f16(*least, to + 2);
    std::uint8_t codes[small_block];
    for (int i = 0; i < small_block; i++) {
        const float code = (x[i] - *least) * reciprocal + 0.5f;
        codes[i] = static_cast<std::uint8_t>(std::min(code, static_cast<float>(most)));
    }
    write_codes(codes, bits == 5 ? to + 4 : nullptr, to + (bits == 5 ? 8 : 4));
}

// ---- Blocks of 256 values: groups with a scale and a minimum, which are multiples of the block's ----

constexpr int super_block = 256;

/// A value is scale * code - minimum.
struct Line {
    float scale = 0, minimum = 0;
};

/// The code of a value, `first` to `last`. Adding and subtracting 1.5 * 2^23 rounds to nearest with instructions that every
/// processor has on vectors.
float code_of(float x, const Line &line, float reciprocal, float first, float last) {
    constexpr float rounder = 0x1.8p23f;
    return std::min(std::max((x + line.minimum) * reciprocal, first), last) + rounder - rounder;
}

/// The squared error of values with their nearest codes.
template<int count>
float error_of(const float *x, const Line &line, float first, float last) {
    const float reciprocal = inverse(line.scale);
    float sum = 0;
    for (int i = 0; i < count; i++) {
        const float error = line.scale * code_of(x[i], line, reciprocal, first, last) - line.minimum - x[i];
        sum += error * error;
    }
    return sum;
}

/// The line of the least squared error for the codes that `line` gives: linear regression of values on codes. The minimum is
/// not below 0, and 0 where there is to be none.
template<int count>
Line fitted(const float *x, const Line &line, float first, float last, bool has_minimum) {
    const float reciprocal = inverse(line.scale);
    float c = 0, cc = 0, cx = 0, sum = 0;
    for (int i = 0; i < count; i++) {
        const float code = code_of(x[i], line, reciprocal, first, last);
        c += code;
        cc += code * code;
        cx += code * x[i];
        sum += x[i];
    }
    const float determinant = count * cc - c * c;
    if (has_minimum && determinant > 0) {
        const Line both{(count * cx - c * sum) / determinant, (c * cx - cc * sum) / determinant};
        if (both.minimum > 0) {
            return both;
        }
    }
    return {cc > 0 ? cx / cc : 0, 0};
}

/// The best of the lines that start from `spans` and, fitted, have the least error. Values are at most 1 in magnitude.
template<int count, class Spans>
Line best_line(const float *x, float first, float last, bool has_minimum, const Spans &spans) {
    Line best = spans(0);
    float least = error_of<count>(x, best, first, last);
    constexpr int tries = 10;
    for (int i = -tries; i <= tries; i++) {
        const Line line = fitted<count>(x, spans(static_cast<float>(i) * 0.1f), first, last, has_minimum);
        const float error = error_of<count>(x, line, first, last);
        if (error < least) {
            least = error;
            best = line;
        }
    }
    return best;
}

/// Values over their largest magnitude, so that no square overflows or vanishes; that, which is 0 of a block of zeros.
float normalize(const float *x, float (&values)[super_block]) {
    const float largest = std::fabs(of_largest_magnitude(x, super_block));
    if (largest < least_scale) {
        return 0;
    }
    std::transform(x, x + super_block, values, [&](float value) { return value / largest; });
    return largest;
}

/// Multiples of d and dmin for one group: the nearest to its line, or one beside them if that has a smaller error.
struct Factors {
    int scale = 0, minimum = 0;
};

template<int count>
Factors nearest_factors(const float *x, const Line &line, const Line &unit, Factors least, Factors most, float first,
                        float last) {
    const auto nearest = [](float value, float step, int low, int high) {
        return step == 0 ? 0 : static_cast<int>(std::clamp(std::round(value / step), float(low), float(high)));
    };
    const Factors middle{nearest(line.scale, unit.scale, least.scale, most.scale),
                         nearest(line.minimum, unit.minimum, least.minimum, most.minimum)};
    Factors best = middle;
    float smallest = -1;
    for (int scale = std::max(middle.scale - 1, least.scale); scale <= std::min(middle.scale + 1, most.scale);
         scale++) {
        for (int minimum = std::max(middle.minimum - 1, least.minimum);
             minimum <= std::min(middle.minimum + 1, most.minimum); minimum++) {
            const float error = error_of<count>(
                x, {unit.scale * static_cast<float>(scale), unit.minimum * static_cast<float>(minimum)}, first, last);
            if (smallest < 0 || error < smallest) {
                smallest = error;
                best = {scale, minimum};
            }
        }
    }
    return best;
}

/// Q4_K and Q5_K: 8 groups of 32 values.
struct TwoLevels {
    float d = 0, dmin = 0;
    Factors factors[8] = {};
    std::uint8_t codes[super_block] = {};
};

void write_two_levels(const TwoLevels &from, std::uint8_t *s) {
    for (int g = 0; g < 4; g++) {
        const Factors &low = from.factors[g], &high = from.factors[g + 4];
        s[g] = static_cast<std::uint8_t>(low.scale | high.scale >> 4 << 6);
        s[g + 4] = static_cast<std::uint8_t>(low.minimum | high.minimum >> 4 << 6);
        s[g + 8] = static_cast<std::uint8_t>((high.scale & 15) | (high.minimum & 15) << 4);
    }
}

/// d and dmin go to `to`.
TwoLevels search_two_levels(const float *x, int most, std::uint8_t *to) {
    constexpr int groups = 8, group = 32, most_factor = 63;
    TwoLevels result;
    float values[super_block] = {};
    const float largest = normalize(x, values), last = static_cast<float>(most);
    Line lines[groups], top;
    for (int g = 0; g < groups && largest > 0; g++) {
        const float *const v = values + g * group;
        const float low = std::min(*std::min_element(v, v + group), 0.0f), high = *std::max_element(v, v + group);
        lines[g] = best_line<group>(v, 0, last, true, [&](float more) {
            return Line{std::max(high - low, 0.0f) / (last + more), -low};
        });
        top = {std::max(top.scale, lines[g].scale), std::max(top.minimum, lines[g].minimum)};
    }
    result.d = write_f16(top.scale * largest / most_factor, to);
    result.dmin = write_f16(top.minimum * largest / most_factor, to + 2);
    const bool is_held = largest > 0 && std::isfinite(result.d) && std::isfinite(result.dmin);
    for (int g = 0; g < groups && is_held; g++) {
        const Line unit{result.d / largest, result.dmin / largest};
        const Factors factors =
            nearest_factors<group>(values + g * group, lines[g], unit, {0, 0}, {most_factor, most_factor}, 0, last);
        const Line line{unit.scale * static_cast<float>(factors.scale),
                        unit.minimum * static_cast<float>(factors.minimum)};
        result.factors[g] = factors;
        for (int i = g * group; i < (g + 1) * group; i++) {
            result.codes[i] = static_cast<std::uint8_t>(code_of(values[i], line, inverse(line.scale), 0, last));
        }
    }
    return result;
}

/// 4 bits of the codes of two groups in 32 bytes.
void write_low_bits(const TwoLevels &from, std::uint8_t *to) {
    for (int i = 0; i < super_block / 2; i++) {
        const int at = i / 32 * 64 + i % 32;
        to[i] = static_cast<std::uint8_t>((from.codes[at] & 15) | (from.codes[at + 32] & 15) << 4);
    }
}

void encode_q4_k(const float *x, std::uint8_t *to) {
    const TwoLevels found = search_two_levels(x, 15, to);
    write_two_levels(found, to + 4);
    write_low_bits(found, to + 16);
}

void encode_q5_k(const float *x, std::uint8_t *to) {
    const TwoLevels found = search_two_levels(x, 31, to);
    write_two_levels(found, to + 4);
    std::memset(to + 16, 0, 32);
    for (int i = 0; i < super_block; i++) {
        to[16 + i % 32] = static_cast<std::uint8_t>(to[16 + i % 32] | found.codes[i] >> 4 << i / 32);
    }
    write_low_bits(found, to + 48);
}

/// Codes of 6 bits: bytes of four values each that are 32 apart, low bits and high bits apart.
void write_q6_k_codes(const std::uint8_t (&codes)[super_block], std::uint8_t *low, std::uint8_t *high) {
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < 32; i++) {
            const std::uint8_t *const c = codes + 128 * half + i;
            low[64 * half + i] = static_cast<std::uint8_t>((c[0] & 15) | (c[64] & 15) << 4);
            low[64 * half + 32 + i] = static_cast<std::uint8_t>((c[32] & 15) | (c[96] & 15) << 4);
            high[32 * half + i] =
                static_cast<std::uint8_t>(c[0] >> 4 | c[32] >> 4 << 2 | c[64] >> 4 << 4 | c[96] >> 4 << 6);
        }
    }
}

/// 16 groups of 16 values, with scales of either sign and without minima.
void encode_q6_k(const float *x, std::uint8_t *to) {
    constexpr int groups = 16, group = 16, middle = 32;
    constexpr float first = -middle, last = middle - 1;
    constexpr Factors least{-128, 0}, most{127, 0};
    float values[super_block] = {};
    const float largest = normalize(x, values);
    Line lines[groups];
    float top = 0;
    for (int g = 0; g < groups && largest > 0; g++) {
        const float *const v = values + g * group;
        const float end = of_largest_magnitude(v, group);
        lines[g] = best_line<group>(v, first, last, false, [&](float more) { return Line{end / (first - more), 0}; });
        top = std::fabs(lines[g].scale) > std::fabs(top) ? lines[g].scale : top;
    }
    const float d = write_f16(top * largest / -128, to + 208);
    std::uint8_t codes[super_block];
    for (int g = 0; g < groups; g++) {
        const Line unit{largest > 0 && std::isfinite(d) ? d / largest : 0, 0};
        const Factors factors = nearest_factors<group>(values + g * group, lines[g], unit, least, most, first, last);
        const Line line{unit.scale * static_cast<float>(factors.scale), 0};
        to[192 + g] = static_cast<std::uint8_t>(factors.scale);
        for (int i = g * group; i < (g + 1) * group; i++) {
            const float code = code_of(values[i], line, inverse(line.scale), first, last);
            codes[i] = static_cast<std::uint8_t>(static_cast<int>(code) + middle);
        }
    }
    write_q6_k_codes(codes, to, to + 128);
}

using Encoder = void (*)(const float *, std::uint8_t *);

Encoder encoder_of(const BlockFormat &format) {
    if (!format.codes) {
        return format.bytes == sizeof(float) ? [](const float *x, std::uint8_t *to) { std::memcpy(to, x, sizeof *x); }
               : format.name == "F16"        ? [](const float *x, std::uint8_t *to) { write_16(to_f16(*x), to); }
                                             : [](const float *x, std::uint8_t *to) { write_16(to_bf16(*x), to); };
    }
    switch (*format.codes) {
    case HALYARD_CODES_Q8_0:
        return encode_q8_0;
    case HALYARD_CODES_Q4_0:
        return encode_symmetric<4>;
    case HALYARD_CODES_Q4_1:
        return encode_with_minimum<4>;
    case HALYARD_CODES_Q5_0:
        return encode_symmetric<5>;
    case HALYARD_CODES_Q5_1:
        return encode_with_minimum<5>;
    case HALYARD_CODES_Q4_K:
        return encode_q4_k;
    case HALYARD_CODES_Q5_K:
        return encode_q5_k;
    default:
        return encode_q6_k;
    }
}

}  // namespace

void encode_blocks(const BlockFormat &format, const float *from, std::int64_t count, std::byte *to) noexcept {
    const Encoder encode = encoder_of(format);
    auto *at = reinterpret_cast<std::uint8_t *>(to);
    for (std::int64_t i = 0; i < count; i += format.elements, at += format.bytes) {
        encode(from + i, at);
    }
}

CodedGroup encode_group(const float *from, std::int64_t count, int bits, bool symmetric, std::uint8_t *codes) noexcept {
    return !symmetric  ? encode_with_zero(from, count, bits, codes)
           : bits == 8 ? encode_8_bits(from, count, codes)
                       : encode_around_middle<4>(from, count, codes);
}

}  // namespace halyard::models
