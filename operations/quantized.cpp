// See quantized.h.
#include "quantized.h"

#include <algorithm>
#include <cmath>

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

}  // namespace halyard::operations
