// Conversions between the storage types and double by arithmetic on doubles and integers.
#include "dtype.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace halyard::operations {
namespace {

/** An IEEE 754 binary interchange format, or bfloat16, which is built the same way. */
struct Format {
    constexpr Format(int exponent_bits, int fraction_bits)
        : fraction_bits(fraction_bits), bias((1 << (exponent_bits - 1)) - 1), least_exponent(1 - bias - fraction_bits),
          infinity(((1u << exponent_bits) - 1) << fraction_bits), sign(1u << (exponent_bits + fraction_bits)) {}

    int fraction_bits, bias;
    int least_exponent;  // of the smallest positive value
    std::uint32_t infinity, sign;
};

const Format &format_of(Dtype dtype) {
    static constexpr Format formats[] = {{8, 23}, {5, 10}, {8, 7}};
    return formats[static_cast<int>(dtype)];
}

/** 2^exponent as a double; exponent in the normal range of double. */
double power_of_two(int exponent) {
    const std::uint64_t bits = static_cast<std::uint64_t>(exponent + 1023) << 52;
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

int exponent_of(double value) {
    std::uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return static_cast<int>((bits >> 52) & 0x7ff) - 1023;
}

/** Exponent of the spacing of the format's numbers at |value|. */
int spacing_exponent(const Format &format, double value) {
    return std::max(exponent_of(value) - format.fraction_bits, format.least_exponent);
}

/** A number of at most 2^51 to the nearest whole one, ties to even: doubles from 2^52 on have no fractions. */
double to_whole(double value) {
    constexpr double whole = 1.5 * (std::int64_t{1} << 52);
    return value + whole - whole;
}

}  // namespace

const char *name_of(Dtype dtype) {
    static const char *const names[] = {"f32", "f16", "bf16"};
    return names[static_cast<int>(dtype)];
}

std::size_t size_of(Dtype dtype) {
    return dtype == Dtype::f32 ? 4 : 2;
}

DLDataType dlpack_type(Dtype dtype) {
    const auto code = static_cast<std::uint8_t>(dtype == Dtype::bf16 ? kDLBfloat : kDLFloat);
    return {code, static_cast<std::uint8_t>(8 * size_of(dtype)), 1};
}

bool is_nan(Dtype dtype, std::uint32_t bits) {
    const Format &format = format_of(dtype);
    return (bits & (format.sign - 1)) > format.infinity;
}

double decode(Dtype dtype, std::uint32_t bits) {
    const Format &format = format_of(dtype);
    const std::uint32_t magnitude = bits & (format.sign - 1);
    const double sign = (bits & format.sign) != 0 ? -1.0 : 1.0;
    if (magnitude > format.infinity) {
        return std::numeric_limits<double>::quiet_NaN();
    }
    if (magnitude == format.infinity) {
        return sign * std::numeric_limits<double>::infinity();
    }
    const std::uint32_t exponent = magnitude >> format.fraction_bits;
    if (exponent != 0 && dtype != Dtype::f16) {
        return float_from_bits(dtype == Dtype::f32 ? bits : bits << 16);
    }
    const std::uint32_t fraction = magnitude & ((1u << format.fraction_bits) - 1);
    const std::uint32_t significand = exponent == 0 ? fraction : fraction + (1u << format.fraction_bits);
    const int steps = exponent == 0 ? 0 : static_cast<int>(exponent) - 1;
    return sign * significand * power_of_two(format.least_exponent + steps);
}

std::uint32_t encode(Dtype dtype, double value) {
    const Format &format = format_of(dtype);
    const std::uint32_t sign = std::signbit(value) ? format.sign : 0;
    if (std::isnan(value)) {
        return sign | format.infinity | (1u << (format.fraction_bits - 1));
    }
    const double magnitude = std::fabs(value);
    if (magnitude >= power_of_two(format.bias + 1)) {
        return sign | format.infinity;
    }
    // magnitude / quantum is exact and below 2^(fraction_bits + 1): one rounding, in a type with 53 bits.
    const int quantum = spacing_exponent(format, magnitude);
    const auto units = static_cast<std::uint32_t>(to_whole(magnitude * power_of_two(-quantum)));
    // A significand that rounds up to the next power of two carries into the exponent, up to infinity.
    const auto steps = static_cast<std::uint32_t>(quantum - format.least_exponent);
    return sign | ((steps << format.fraction_bits) + units);
}

double round_to(Dtype dtype, double value) {
    if (dtype == Dtype::f32) {
        return static_cast<float>(value);
    }
    const Format &format = format_of(dtype);
    if (!(std::fabs(value) < power_of_two(format.bias + 1))) {
        return decode(dtype, encode(dtype, value));
    }
    const int quantum = spacing_exponent(format, value);
    const double rounded = to_whole(value * power_of_two(-quantum)) * power_of_two(quantum);
    return std::fabs(rounded) > max_finite(dtype) ? std::copysign(HUGE_VAL, value) : std::copysign(rounded, value);
}

double spacing(Dtype dtype, double value) {
    return power_of_two(spacing_exponent(format_of(dtype), value));
}

double ulp_f32(double value) {
    return power_of_two(std::max(exponent_of(value) - 23, -149));
}

double max_finite(Dtype dtype) {
    return decode(dtype, format_of(dtype).infinity - 1);
}

double min_normal(Dtype dtype) {
    return decode(dtype, 1u << format_of(dtype).fraction_bits);
}

double min_denormal(Dtype dtype) {
    return decode(dtype, 1);
}

std::uint32_t bits_of(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

float float_from_bits(std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

}  // namespace halyard::operations
