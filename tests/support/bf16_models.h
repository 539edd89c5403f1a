// What products of bf16 come to by the instructions of the sets that have some, by scalar operations.
#ifndef HALYARD_TESTS_BF16_MODELS_H
#define HALYARD_TESTS_BF16_MODELS_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

namespace halyard::tests {

/** A denormal counts as 0 of the same sign. */
inline float flushed(float value) {
    return std::fabs(value) < 0x1p-126f ? std::copysign(0.0f, value) : value;
}

/** a b + c, rounded once, to nearest even, where a and b are bf16. Denormals count as 0: the operands, and a result that
 *  would be one if its exponent were unbounded when it is rounded. */
inline float fused_flushed(float a, float b, float c) {
    a = flushed(a), b = flushed(b), c = flushed(c);
    const float result = std::fmaf(a, b, c);
    if (std::fabs(result) > 0x1p-126f || std::isnan(result)) {
        return result;
    }
    // Near the least normal number: the same sum where there is room below. Neither c nor the smaller factor is large.
    const auto [smaller, larger] = std::fabs(a) < std::fabs(b) ? std::pair(a, b) : std::pair(b, a);
    const bool denormal = std::fabs(std::fmaf(smaller * 0x1p60f, larger, c * 0x1p60f)) < 0x1p-66f;
    return denormal ? std::copysign(0.0f, result) : result;
}

/** a + b, cut off after 24 bits; the last one is set if anything is lost. Denormals count as 0. */
inline float add_to_odd(float a, float b) {
    a = flushed(a), b = flushed(b);
    const double x = a, y = b, sum = x + y;
    if (!std::isfinite(sum) || sum == 0) {
        return static_cast<float>(sum);
    }
    const double part = sum - x, rest = (x - (sum - part)) + (y - part);  // sum + rest is exact
    const double cut = rest != 0 && (rest > 0) != (sum > 0) ? std::nextafter(sum, 0.0) : sum;
    if (std::fabs(cut) < 0x1p-126 || std::fabs(cut) >= 0x1p128) {
        return static_cast<float>(std::copysign(std::fabs(cut) < 1 ? 0.0 : HUGE_VAL, sum));
    }
    std::uint64_t bits;
    std::memcpy(&bits, &cut, sizeof(bits));
    constexpr std::uint64_t lost = (std::uint64_t{1} << 29) - 1;  // bits that f32 lacks
    const bool odd = (bits & lost) != 0 || rest != 0;
    bits = (bits & ~lost) | (odd ? lost + 1 : 0);
    double result;
    std::memcpy(&result, &bits, sizeof(result));
    return static_cast<float>(result);
}

/** One element of BFDOT: sum + (x0 w0 + x1 w1). Products of bf16 are exact but where they are too small or too large. */
inline float add_dot_product(float x0, float w0, float x1, float w1, float sum) {
    const auto product = [](float a, float b) { return flushed(flushed(a) * flushed(b)); };
    return add_to_odd(sum, add_to_odd(product(x0, w0), product(x1, w1)));
}

/** The sum over all inputs, 512 at a time and from 0, each pair of them by step(x0, w0, x1, w1, sum so far). */
template<typename X, typename W, typename Step>
float sum_in_blocks(std::int64_t inputs, const X &x, const W &w, const Step &step) {
    float total = 0;
    for (std::int64_t first = 0; first < inputs; first += 512) {
        float block = 0;
        for (std::int64_t k = first; k < std::min(inputs, first + 512); k += 2) {
            const bool both = k + 1 < inputs;
            block = step(x(k), w(k), both ? x(k + 1) : 0, both ? w(k + 1) : 0, block);
        }
        total = first == 0 ? block : total + block;
    }
    return total;
}

/** One element of TDPBF16PS for up to 32 inputs, x(0) w(0) + x(1) w(1) + ..., on top of `sum`. Two chains, one over the
 *  earlier and one over the later members of the pairs, begin at 0. */
template<typename X, typename W>
float add_tile_product(float sum, std::int64_t inputs, const X &x, const W &w) {
    float chains[2] = {};
    for (std::int64_t k = 0; k < inputs; k++) {
        chains[k % 2] = fused_flushed(x(k), w(k), chains[k % 2]);
    }
    return flushed(flushed(sum) + flushed(chains[0] + chains[1]));
}

/** The sum over all inputs, a tile at a time. */
template<typename X, typename W>
float amx_sum(std::int64_t inputs, const X &x, const W &w) {
    float sum = 0;
    for (std::int64_t first = 0; first < inputs; first += 32) {
        sum = add_tile_product(
            sum, std::min<std::int64_t>(32, inputs - first), [&](std::int64_t k) { return x(first + k); },
            [&](std::int64_t k) { return w(first + k); });
    }
    return sum;
}

}  // namespace halyard::tests

#endif
