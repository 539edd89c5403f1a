// See quantized.h.
#include "quantized.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace halyard::operations {
namespace {

constexpr float least_scale = 0x1p-126f;

int nearest(float x) {
    return static_cast<int>(std::round(x));
}

/** f16 if the options leave it open. */
Dtype scale_type(const halyard_quantization &quantization) {
    if (quantization.scale_dtype.bits == 0) {
        return Dtype::f16;
    }
    return quantization.scale_dtype.bits == 32          ? Dtype::f32
           : quantization.scale_dtype.code == kDLBfloat ? Dtype::bf16
                                                        : Dtype::f16;
}

std::size_t group_of(const halyard_quantization &quantization, std::size_t in) {
    return quantization.group == 0 ? in : static_cast<std::size_t>(quantization.group);
}

// ---- Q4_K: f16 d and dmin, 12 bytes of scales and minima of 6 bits, 128 bytes of codes ----

constexpr std::size_t q4_k_groups = 8, q4_k_group = 32, q4_k_scales_at = 4, q4_k_codes_at = 16;
constexpr int most_of_6_bits = 63, most_of_4_bits = 15;

int within(double x, int most) {
    return std::clamp(static_cast<int>(std::round(x)), 0, most);
}

void write_f16(double value, std::uint8_t *to) {
    const auto bits = static_cast<std::uint16_t>(encode(Dtype::f16, value));
    std::memcpy(to, &bits, sizeof bits);
}

double read_f16(const std::uint8_t *from) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, from, sizeof bits);
    return decode(Dtype::f16, bits);
}

void quantize_q4_k(const double *weights, std::uint8_t *block) {
    double scales[q4_k_groups], minima[q4_k_groups];
    for (std::size_t g = 0; g < q4_k_groups; g++) {
        const auto [least, largest] = std::minmax_element(weights + g * q4_k_group, weights + (g + 1) * q4_k_group);
        minima[g] = std::max(-*least, 0.0);
        scales[g] = (std::max(*largest, 0.0) + minima[g]) / most_of_4_bits;
    }
    const double d = round_to(Dtype::f16, *std::max_element(scales, scales + q4_k_groups) / most_of_6_bits);
    const double dmin = round_to(Dtype::f16, *std::max_element(minima, minima + q4_k_groups) / most_of_6_bits);
    write_f16(d, block);
    write_f16(dmin, block + 2);
    std::uint8_t *const six_bits = block + q4_k_scales_at;
    std::uint8_t *const codes = block + q4_k_codes_at;
    for (std::size_t g = 0; g < q4_k_groups; g++) {
        const int scale = d == 0 ? 0 : within(scales[g] / d, most_of_6_bits);
        const int minimum = dmin == 0 ? 0 : within(minima[g] / dmin, most_of_6_bits);
        if (g < 4) {
            six_bits[g] = static_cast<std::uint8_t>(scale);
            six_bits[g + 4] = static_cast<std::uint8_t>(minimum);
        } else {
            six_bits[g + 4] = static_cast<std::uint8_t>((scale & 15) | (minimum & 15) << 4);
            six_bits[g - 4] = static_cast<std::uint8_t>(six_bits[g - 4] | scale >> 4 << 6);
            six_bits[g] = static_cast<std::uint8_t>(six_bits[g] | minimum >> 4 << 6);
        }
        const double step = d * scale;
        for (std::size_t i = 0; i < q4_k_group; i++) {
            const double above = weights[g * q4_k_group + i] + dmin * minimum;
            const int code = step == 0 ? 0 : within(above / step, most_of_4_bits);
            // Two groups share 32 bytes.
            std::uint8_t &byte = codes[g / 2 * q4_k_group + i];
            byte = static_cast<std::uint8_t>(g % 2 == 0 ? code : byte | code << 4);
        }
    }
}

void add_values_of_q4_k(const std::uint8_t *block, int sign_of_minimum, Row &values) {
    const double d = read_f16(block), dmin = read_f16(block + 2);
    const std::uint8_t *const s = block + q4_k_scales_at;
    const std::uint8_t *const codes = block + q4_k_codes_at;
    for (std::size_t g = 0; g < q4_k_groups; g++) {
        const int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
        const int minimum = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;
        for (std::size_t i = 0; i < q4_k_group; i++) {
            const int byte = codes[g / 2 * q4_k_group + i];
            values.push_back(d * scale * (g % 2 == 0 ? byte & 15 : byte >> 4) + sign_of_minimum * dmin * minimum);
        }
    }
}

}  // namespace

QuantizedGroup quantized_group(const Row &weights, int bits, bool asymmetric) {
    float largest = 0, low = 0, high = 0;
    for (const double weight : weights) {
        const auto w = static_cast<float>(weight);
        largest = std::abs(w) > std::abs(largest) ? w : largest;
        low = std::min(low, w);
        high = std::max(high, w);
    }
    const int most = (1 << bits) - 1;
    QuantizedGroup group;
    group.scale = asymmetric  ? (high - low) / static_cast<float>(most)
                  : bits == 8 ? std::abs(largest) / 127
                              : largest / -8;
    group.scale = std::abs(group.scale) < least_scale ? 0 : group.scale;
    const float inverse = group.scale == 0 ? 0 : 1 / group.scale;
    group.zero = asymmetric ? std::min(most, nearest(-low * inverse)) : 1 << (bits - 1);
    for (const double weight : weights) {
        const float quotient = static_cast<float>(weight) * inverse;
        const int code = asymmetric || bits == 8 ? nearest(quotient) + group.zero : static_cast<int>(quotient + 8.5f);
        group.codes.push_back(std::clamp(code, 0, most));
    }
    return group;
}

Row quantized_values(const Row &weights, const halyard_quantization &quantization) {
    const std::size_t step = group_of(quantization, weights.size());
    Row values;
    for (std::size_t first = 0; first < weights.size(); first += step) {
        const auto begin = weights.begin() + static_cast<std::ptrdiff_t>(first);
        const auto end = weights.begin() + static_cast<std::ptrdiff_t>(std::min(weights.size(), first + step));
        const QuantizedGroup group = quantized_group(Row(begin, end), quantization.bits, quantization.asymmetric != 0);
        const double scale = round_to(scale_type(quantization), static_cast<double>(group.scale));
        for (const int code : group.codes) {
            values.push_back(scale * (code - group.zero));
        }
    }
    return values;
}

double bytes_of_weight(const halyard_quantization &quantization, std::int64_t in) {
    const double shared =
        static_cast<double>(size_of(scale_type(quantization))) + (quantization.asymmetric != 0 ? 1 : 0);
    return quantization.bits / 8.0 + shared / static_cast<double>(group_of(quantization, static_cast<std::size_t>(in)));
}

Q4KMatrix::Q4KMatrix(std::int64_t out, std::int64_t in, const std::function<Row(std::int64_t)> &row)
    : outs(out), ins(in), blocks(static_cast<std::size_t>(out * bytes_of_row())) {
    std::uint8_t *block = blocks.data();
    for (std::int64_t output = 0; output < out; output++) {
        const Row weights = row(output);
        for (std::int64_t k = 0; k < in; k += block_inputs, block += block_bytes) {
            quantize_q4_k(weights.data() + k, block);
        }
    }
}

Row Q4KMatrix::row(std::int64_t output) const {
    return row(output, -1);
}

Row Q4KMatrix::magnitudes(std::int64_t output) const {
    return row(output, 1);
}

Row Q4KMatrix::row(std::int64_t output, int sign_of_minimum) const {
    Row values;
    const std::uint8_t *const first = blocks.data() + output * bytes_of_row();
    for (std::int64_t at = 0; at < bytes_of_row(); at += block_bytes) {
        add_values_of_q4_k(first + at, sign_of_minimum, values);
    }
    return values;
}

halyard_status Q4KMatrix::pack(const halyard_context *context, halyard_weights **weights) const {
    std::int64_t shape[] = {outs, bytes_of_row()};
    const DLTensor matrix = {
        const_cast<std::uint8_t *>(blocks.data()), {kDLCPU, 0}, 2, {kDLUInt, 8, 1}, shape, nullptr, 0};
    halyard_codes codes{};
    codes.format = HALYARD_CODES_Q4_K;
    codes.in_features = ins;
    codes.out_features = outs;
    codes.matrix = &matrix;
    return halyard_weights_pack_codes(context, &codes, nullptr, nullptr, 0, weights);
}

}  // namespace halyard::operations
