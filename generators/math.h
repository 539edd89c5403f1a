// Elementary functions over f32 expressions.
#ifndef HALYARD_GENERATORS_MATH_H
#define HALYARD_GENERATORS_MATH_H

#include <cstddef>
#include <cstdint>
#include <vector>

#include "Halide.h"
#include "fma.h"
#include "schedules/dtype.h"

namespace halyard {

/** Elementary functions, activations and their derivatives as f32 expressions.
 *
 * Every function is straight-line code: fused multiply-adds, clamps, a shift, at most one division (swish divides twice
 * more by beta, outside the loop where beta is the same for all elements). No tables, no branches.
 *
 * The target must have the feature strict_float. Then each operation below is one correctly rounded IEEE operation, in
 * the order written, and every target with FMA gives the same bits. A target without FMA (the x86 baseline) gives
 * other bits; its bounds are those below, but where a comment says otherwise.
 *
 * "Error" is the largest one over every finite f32 input, in ULP: the spacing of floats at the true result, 2^-149
 * where that is denormal; for derivatives, over every seventh input. Denormal inputs and results are not flushed. NaN
 * in gives NaN out.
 *
 * What is to be rounded to 16 bits anyway needs less: polynomials are shorter, and what makes up for the rounding of
 * their arguments is left out. With f16 or bf16 for `result` the relative error of the functions is 2^-16 or 2^-13 at
 * most, 1/32 ULP of that type; limits and signs are the same. Derivatives cancel near their zeros and come in f32 alone.
 *
 * The polynomials are minimax fits by generators/fit/fit_math.py, coefficients from the constant term up. */
class Math : public Fma {
public:
    explicit Math(const Halide::Target &target, DType result = DType::f32)
        : Fma(target), result(result), is_gpu(target.has_gpu_feature()) {}

    /** For kernels that say strict_float expression by expression. */
    static Math of_strict(const Halide::Target &target, DType result = DType::f32) {
        return Math(target.with_feature(Halide::Target::StrictFloat), result);
    }

    /** e^x. Error 1.65 (baseline 1.9), denormal results included.
     * x = 2m·ln 2 + r, |r| <= ln 2, and e^x = (P(r)·2^m)·2^m: halving the exponent lets one power of two serve the
     * whole range, from denormal results to overflow, for two more terms of P than |r| <= ½ ln 2 takes. exp(±0) = 1,
     * exp(-inf) = 0, exp(inf) = inf; inf from 88.7228394, 0 below -103.97. */
    Expr exp(Expr v) const { return exp_in_range(at_most(at_least(v, -105.0f), 89.0f)); }

    /** As exp, for x <= 0 or NaN alone. */
    Expr exp_not_above_one(Expr v) const { return exp_in_range(at_least(v, -105.0f)); }

    /** e^-x·2^64 for x >= 0 or NaN alone, for quotients of such numbers: none is denormal, so that one power of two serves, and |r| <=
     *  ½ ln 2 takes a term less. Error 0.9 (baseline 1.2). Beyond 105, where e^-x rounds to 0 beside 1, as at 105. */
    Expr exp_minus_by_64(Expr v) const {
        Expr x = at_most(v, 105.0f);
        Power p = nearest_power(x, -log2e, 64);
        return exp_minus(x, p.n, exp_minus_coefficients()) * p.scale;
    }

    /** ln x. Error 0.9. x = m·2^n with √½ <= m < √2, f = m - 1, and ln x = n·ln 2 + f - f²/2 + f³P(f). Denormal x are scaled
     * first. log(0) = -inf, log(inf) = inf; NaN below 0. */
    Expr log(Expr v) const {
        const Expr least_m = u32(least_mantissa);
        Expr small = v < 0x1p-126f;
        Expr distance = bits(Halide::select(small, v * 0x1p24f, v)) - least_m;
        Expr n = Halide::cast<float>(Halide::reinterpret<int32_t>(distance) >> 23) - Halide::select(small, 24.0f, 0.0f);
        Expr f = float_of((distance & u32(0x7fffffu)) + least_m) - 1.0f;
        Expr result = log_of_power(n, f);
        const Expr infinity = float_of(u32(0x7f800000u));
        return Halide::select(v > 0.0f && v < infinity, result, v == 0.0f, float_of(u32(0xff800000u)), v < 0.0f,
                              float_of(u32(0x7fc00000u)), v);
    }

    /** ln(1 + x) for x >= 0, or NaN. Error 1.5. As ln of the rounded sum 1 + x = m·2^n, whose rounding error, at most 1, is put back
     * into f: where n = 0, f is x itself. log1p(inf) = inf. */
    Expr log1p_not_negative(Expr v) const {
        const Expr least_m = u32(least_mantissa);
        Pair sum = add(1.0f, v);
        Expr distance = bits(sum.high) - least_m;
        Expr exponent = Halide::reinterpret<int32_t>(distance) >> 23;
        // Far above 1 the error is nothing beside n·ln 2, and 2^-n would be denormal.
        Expr power = float_of(u32(127u << 23) - (Halide::reinterpret<uint32_t>(Halide::min(exponent, 64)) << 23));
        Expr f = fma(sum.low, power, float_of((distance & u32(0x7fffffu)) + least_m) - 1.0f);
        return Halide::select(v < float_of(u32(0x7f800000u)), log_of_power(Halide::cast<float>(exponent), f), v);
    }

    /** σ(x) = 1/(1 + e^-x). Error 2.5. Written as u/(u + u·e^-x) with u = 2^-24, so that e^-x does not overflow before
     * the quotient has passed through all denormals. sigmoid(-inf) = 0, sigmoid(inf) = 1. */
    Expr sigmoid(Expr v) const {
        const float unit = 0x1p-24f;
        Expr x = at_most(at_least(v, -104.0f), 64.0f);
        Power p = nearest_power(x, -log2e, -24);
        Expr m = exp_minus(x, p.n, exp_minus_coefficients());
        return unit / fma(m, p.scale, unit);
    }

    /** x·σ(x). Error 3.6. As x/(u + u·e^-x)·u with u = 2^-32: relative accuracy reaches down to the last denormal,
     * which e^-x alone would not, since it overflows at -88.7. Where the quotient itself overflows (x > 2^96) the
     * result is x, and |silu(x)| <= |x| everywhere, so an integer minimum of the bit patterns repairs it. silu(±0) =
     * ±0, silu(-inf) = -0, silu(inf) = inf. */
    Expr silu(Expr v) const {
        Expr low = at_least(v, -110.0f);
        Expr x = at_most(low, 64.0f);
        Power p = nearest_power(x, -log2e, -32);
        Expr m = exp_minus(x, p.n, {1.0f, -0.999999702f, 0.499991477f, -0.166676521f, 0.0418981761f, -0.00828936044f});
        return gated(v, low, m, p);
    }

    /** x·σ(1.702x), the "quick" GELU. Error 3.6. As silu, in base 2: 2^-32 + 2^(-32 - x·1.702·log2 e). Specials as
     * silu. */
    Expr gelu_sigmoid(Expr v) const {
        Expr low = at_least(v, -64.6f);
        Expr x = at_most(low, 32.0f);
        Power p = nearest_power(x, -quick_hi, -32);
        return gated(v, low, exp2_fraction(remainder(x, -quick_hi, -quick_lo, p.n)), p);
    }

    /** ½x(1 + tanh(√(2/π)(x + 0.044715x³))) (Hendrycks & Gimpel 2016), which is x·σ(2√(2/π)(x + 0.044715x³)); as silu,
     * in base 2. Error 3 for x >= -2, 12 for x >= -5, below that 56: there the exponent is large, and what is left of
     * its rounding (that of x², and of the constant of x³) shows. Denormal results: 40. Specials as silu. */
    Expr gelu_tanh(Expr v) const {
        Expr low = at_least(v, -10.9f);
        Cubic c = cubic_exponent(at_most(low, 8.0f), -32);
        return gated(v, low, exp2_fraction(c.f), c.p);
    }

    /** x·σ(βx), with β an expression too, best one that is the same for all elements. Error 3.5 for 2^-94 <= |β| <= 2^99
     * and for β = 0, where it is x/2. Below, βx alone never is small enough, and results below 2^-123 may be nonzero
     * where the true one is 0; above, the quotient underflows. β < 0 is folded into the sign of x, as swish(x, β) =
     * -swish(-x, -β). As silu, but with x as large as β is small the result needs more room than one scale gives: base
     * 4, e^-βx = m·s², and x/(1/s + m·s)·(1/s), where nothing overflows. Specials as silu for β > 0. */
    Expr swish(Expr v, Expr beta) const {
        Expr sign = sign_bit(beta);
        Expr b = absolute(beta);
        const float half_hi = 0.5f * log2e, half_lo = 0.5f * log2e_lo;
        Expr c = b * -half_hi;
        Expr c_lo = fma(b, -half_lo, fma_exact(b, -half_hi, -c));
        // β = 0 is the one case in which the factor x may be -inf; the exponent needs a finite x all the same.
        Expr lowest = Halide::select(b == 0.0f, float_of(u32(0xff800000u)), at_least(-174.0f / b, -largest));
        Expr low = at_least(float_of(bits(v) ^ sign), lowest);
        Expr x = at_most(at_least(low, -largest), at_most(44.0f / b, largest));
        Power p = nearest_power(x, c, 0);
        Expr m = exp4_fraction(remainder(x, c, c_lo, p.n));
        Expr inverse = float_of(u32(254u << 23) - bits(p.scale));
        return float_of(bits(low / fma(m, p.scale, inverse) * inverse) ^ sign);
    }

    /** tanh(x) = y/(y + 2) with y = e^2x - 1 = 2^n·(e^2r - 1) + (2^n - 1), which never exceeds 1 and loses nothing near
     * 0, where n = 0 and y = r·P(r). Error 3.4. tanh(±0) = ±0, tanh(±inf) = ±1. An odd rational of degree 9/8 has two
     * operations less, but errs by 5 and exceeds 1. It serves 16 bits, where all beyond 4 or 5 is 1. */
    Expr tanh(Expr v) const {
        if (result != DType::f32) {
            const float limit = of_result<float>(0, 5, 4);
            Expr x = at_most(at_least(v, -limit), limit), s = x * x;
            return x *
                   polynomial(s, of_result<Coefficients>({}, {0.999997973f, 0.116618685f, 0.00163716974f},
                                                         {0.999986529f, 0.105320066f, 0.000770102546f})) /
                   polynomial(s, of_result<Coefficients>({}, {1.0f, 0.449935824f, 0.018304171f, 6.44653701e-05f},
                                                         {1.0f, 0.438552499f, 0.0137490509f}));
        }
        Expr x = at_most(at_least(v, -10.0f), 10.0f);
        Power p = nearest_power(x, 2 * log2e, 0);
        Expr r = fma(p.n, -0.5f * ln2, x);  // the error of n·ln 2 fades with 2^-|n| in y/(y + 2)
        Expr q = r * polynomial(r, {2.0f, 1.99999988f, 1.33332372f, 0.666678965f, 0.267720371f, 0.0887722075f});
        Expr y = fma(q, p.scale, (1.0f - p.scale) * -1.0f);  // not scale - 1: for x = -0 the sum must be (-0) + (-0)
        return y / (y + 2.0f);
    }

    /** max(0, x). Exact; NaN stays NaN, relu(-0) = -0. */
    Expr relu(Expr x) const { return at_least(x, 0.0f); }

    /** max(0, x)². Error 0.5: one rounding. */
    Expr relu2(Expr x) const {
        const Expr positive = relu(x);
        return positive * positive;
    }

    /** x·Φ(x) = relu(x) - |x|·Φ(-|x|), which is accurate on both sides and needs no select. Error 4 for x >= -2,
     * 8.5 below. gelu(±0) = ±0, gelu(-inf) = 0, gelu(inf) = inf. */
    Expr gelu(Expr v) const {
        Gauss g = gauss(v);
        if (!has_fma && result == DType::f32) {
            return relu(v) - gelu_tail_without_fma(g);
        }
        return relu(v) - times_gauss(mills_numerator(g.z), g) * (g.scale * g.z) / mills_denominator(g.z);
    }

    /** 1 for x > 0, 0 for x <= 0. */
    Expr relu_derivative(Expr x) const {
        return Halide::select(Halide::is_nan(x), x, Halide::select(x > 0.0f, 1.0f, 0.0f));
    }

    /** 2 max(0, x). Exact. */
    Expr relu2_derivative(Expr x) const { return 2.0f * relu(x); }

    /** e^x, as exp. */
    Expr exp_derivative(Expr x) const { return exp(x); }

    /** σ(x)σ(-x) = w/(1 + w)², w = e^-|x|. Error 5.5, in both tails down to the last denormal. */
    Expr sigmoid_derivative(Expr v) const { return sigmoid_with_derivative(v).derivative; }

    /** 1 - tanh²(x) = 4w/(1 + w)², w = e^-2|x|. Error 5.5, in both tails down to the last denormal. */
    Expr tanh_derivative(Expr v) const {
        return logistic_bump(logistic_power(v, -2 * log2e, -2 * log2e_lo, 53.0f), 0x1p-38f);
    }

    /** The derivatives of x·σ(y), y = y(x) odd, are σ(y) + x·y'·σ(y)σ(-y); with w = e^-|y| and x·y' = |x|·|y'| = t they
     * are T = w(1 + w - t)/(1 + w)² for x < 0 and 1 - T for x > 0. Each crosses 0 once, between -0.7 and -1.3 (of y);
     * around that (results below 0.1) the error is absolute, at most 1.5·2^-24. Elsewhere, silu: error 7.5.
     * Limits: -0 at -inf, 1 at inf. */
    Expr silu_derivative(Expr v) const { return silu_with_derivative(v).derivative; }

    /** As silu_derivative, of x·σ(1.702x). Error 8. */
    Expr gelu_sigmoid_derivative(Expr v) const {
        Expr z = at_most(absolute(v), 64.6f);
        return gate_slope(v, scaled_power(z, -quick_hi, -quick_lo), 1.702f * z);
    }

    /** As silu_derivative, of gelu_tanh; y = 2√(2/π)(x + 0.044715x³). Around the zero the error is at most 2·2^-24.
     * Elsewhere error 6.5 for x >= -0.5; in the negative tail 60, for the reason told at gelu_tanh. */
    Expr gelu_tanh_derivative(Expr v) const { return gelu_tanh_with_derivative(v).derivative; }

    /** As silu_derivative, of x·σ(βx), with respect to x. Error 8. ½ for β = 0. */
    Expr swish_derivative(Expr v, Expr beta) const {
        Expr b = absolute(beta);
        Expr c = b * -log2e;
        Expr c_lo = fma(b, -log2e_lo, fma_exact(b, -log2e, -c));
        Expr z = at_most(absolute(v), at_most(110.0f / b, largest));
        return gate_slope(float_of(bits(v) ^ sign_bit(beta)), scaled_power(z, c, c_lo), b * z);
    }

    /** Φ(x) + x·φ(x): T = e^(-z²/2)·(R(z) - z/√(2π)) for x = -z < 0, 1 - T for x = z, the bracket being a rational of
     * degree 5/4 of its own. Around the zero at -0.7518 the error is absolute, at most 1.0·2^-24 (results below 0.1);
     * elsewhere 3.5 for x >= -0.5, 9.5 in the negative tail. Limits: -0 at -inf, 1 at inf. */
    Expr gelu_derivative(Expr v) const {
        Gauss g = gauss(v);
        const float u = gauss_unit;
        Expr numerator = polynomial(g.z, {0.5625f * u, -0.109824836f * u, -0.528538644f * u, -0.345182925f * u,
                                          -0.0992395803f * u, -0.0118190721f * u});
        Expr denominator = polynomial(g.z, {1.125f, 1.57559025f, 0.894705892f, 0.248764649f, 0.0296258591f});
        return mirrored(v, times_gauss(numerator, g) / denominator, g.scale);
    }

    /** A function and its derivative at the same place, from one exponential. */
    struct WithDerivative {
        Expr value, derivative;
    };

    /** σ(x). Error 3.6; the derivative is sigmoid_derivative. */
    WithDerivative sigmoid_with_derivative(Expr v) const {
        Expr w = logistic_power(v, -log2e, -log2e_lo, 106.0f);
        return {select_below_zero(v, w, 1.0f) / one_plus(w) * select_below_zero(v, 0x1p-40f, 1.0f),
                logistic_bump(w, 0x1p-40f)};
    }

    /** x·σ(x). Error 4.6; the derivative is silu_derivative. */
    WithDerivative silu_with_derivative(Expr v) const {
        Expr z = at_most(absolute(v), 110.0f), w = scaled_power(z, -log2e, -log2e_lo);
        return {gate(v, at_least(v, -110.0f) * w, w, 0x1p-40f), gate_slope(v, w, z)};
    }

    /** gelu_tanh and gelu_tanh_derivative. Error 4.7 for x >= -2, below as gelu_tanh. */
    WithDerivative gelu_tanh_with_derivative(Expr v) const {
        Expr z = at_most(absolute(v), 11.0f);
        Cubic c = cubic_exponent(z, 40);
        Expr w = exp2_fraction(c.f) * c.p.scale;
        return {gate(v, at_least(v, -11.0f) * w, w, 0x1p-40f),
                gate_slope(v, w, z * fma(z * z, 0.214064449f, 1.59576917f))};
    }

    /** x·σ(βx), error 4.6, and its derivative with the error of swish_derivative. As for swish, w = e^-|βx| needs more
     * room than one scale gives: w = m·s². */
    WithDerivative swish_with_derivative(Expr v, Expr beta) const {
        Expr sign = sign_bit(beta), b = absolute(beta);
        const float half_hi = 0.5f * log2e, half_lo = 0.5f * log2e_lo;
        Expr c = b * -half_hi;
        Expr c_lo = fma(b, -half_lo, fma_exact(b, -half_hi, -c));
        Expr limit = 174.0f / b;
        Expr x = float_of(bits(v) ^ sign), z = at_most(absolute(v), at_most(limit, largest));
        Power p = nearest_power(z, c, 0);
        Expr part = exp4_fraction(remainder(z, c, c_lo, p.n)) * p.scale;
        Expr w = part * (p.scale * 0x1p40f);
        Expr value = gate(x, at_least(x, limit * -1.0f) * p.scale * part, w, 1.0f);
        return {float_of(bits(value) ^ sign), gate_slope(x, w, b * z)};
    }

private:
    /** An integer n, as a float, and 2^(n + bias). */
    struct Power {
        Expr n, scale;
    };

    /** What gelu_tanh's exponent is reduced to: -y·log2 e = n + f. */
    struct Cubic {
        Power p;
        Expr f;
    };

    /** e^(-z²/2) = (1 + q)·scale·gauss_unit for z = |x| or, beyond, the bound from which on z·e^(-z²/2) rounds to 0. For
     *  16 bits q holds all of 1 + q. */
    struct Gauss {
        Expr z, q, scale;
    };

    using Coefficients = std::vector<float>;

    /** A sum of two floats of which the second is the rounding error of the first. */
    struct Pair {
        Expr high, low;
    };

    static constexpr float log2e = 1.44269502f, log2e_lo = 1.92596299e-8f;
    static constexpr float ln2 = 0.693147182f;
    static constexpr float ln2_hi = 0.693145752f, ln2_lo = 1.42860677e-6f;      // n·ln2_hi is exact: it has 16 bits
    static constexpr float quick_hi = 2.45546699f, quick_lo = -2.61094989e-8f;  // 1.702·log2 e
    static constexpr float gauss_unit = 0x1p-32f;
    static constexpr uint32_t least_mantissa = 0x3f3504f3u;  // √½
    static constexpr float largest = 3.40282347e38f;

    static Expr u32(uint32_t value) { return Halide::Internal::make_const(Halide::UInt(32), value); }

    static Expr bits(const Expr &x) { return Halide::reinterpret<uint32_t>(x); }

    static Expr float_of(const Expr &x) { return Halide::reinterpret<float>(x); }

    static Expr sign_bit(const Expr &x) { return bits(x) & u32(0x80000000u); }

    /** |x|. Halide's own on CUDA is a comparison, a subtraction and a choice, and -0 for -0. */
    Expr absolute(const Expr &x) const { return is_gpu ? float_of(bits(x) & u32(0x7fffffffu)) : Halide::abs(x); }

    // Clamps in the form that is one instruction and keeps NaN, which Halide's min and max do not promise.
    static Expr at_least(const Expr &x, const Expr &low) { return Halide::select(x < low, low, x); }

    static Expr at_most(const Expr &x, const Expr &high) { return Halide::select(x > high, high, x); }

    /** What the type of the result asks for. */
    template<typename T>
    T of_result(const T &f32, const T &f16, const T &bf16) const {
        return result == DType::f32 ? f32 : result == DType::f16 ? f16 : bf16;
    }

    /** Horner's rule. */
    Expr polynomial(const Expr &x, const Coefficients &c) const {
        Expr p = c.back();
        for (size_t i = c.size() - 1; i-- > 0;) {
            p = fma(p, x, c[i]);
        }
        return p;
    }

    /** a·b + c with the error of the product kept without FMA too (Dekker 1971, halves split off by a mask). */
    Expr fma_exact(const Expr &a, const Expr &b, const Expr &c) const {
        if (has_fma) {
            return fma(a, b, c);
        }
        const Expr upper = u32(0xfffff000u);
        Expr ah = float_of(bits(a) & upper), bh = float_of(bits(b) & upper);
        Expr al = a - ah, bl = b - bh, ab = a * b;
        return (ab + c) + (((ah * bh - ab) + ah * bl + al * bh) + al * bl);
    }

    /** a + b (Knuth 1969). */
    static Pair add(const Expr &a, const Expr &b) {
        Expr sum = a + b, b_part = sum - a;
        return {sum, (a - (sum - b_part)) + (b - b_part)};
    }

    /** a·b + c. */
    Pair multiply_add(const Expr &a, const Expr &b, const Expr &c) const {
        Expr product = a * b;
        Pair sum = add(product, c);
        return {sum.high, sum.low + fma_exact(a, b, product * -1.0f)};
    }

    /** exp for -105 <= x <= 89. */
    Expr exp_in_range(const Expr &x) const {
        Power p = nearest_power(x, 0.5f * log2e, 0);
        if (result != DType::f32) {
            return exp4_fraction(remainder(x, 0.5f * log2e, 0.5f * log2e_lo, p.n)) * p.scale * p.scale;
        }
        Expr r = fma(p.n, -2 * ln2_lo, fma(p.n, -2 * ln2_hi, x));
        Expr m = polynomial(
            r, {1.0f, 1.0f, 0.500000358f, 0.16666618f, 0.041661229f, 0.00833593495f, 0.00141047779f, 0.000196297508f});
        return m * p.scale * p.scale;
    }

    /** n·ln 2 + ln(1 + f), √½ <= 1 + f < √2. */
    Expr log_of_power(const Expr &n, const Expr &f) const {
        Expr r = fma(f,
                     polynomial(f, {0.333333313f, -0.250008196f, 0.200012416f, -0.166234091f, 0.142015815f,
                                    -0.131596133f, 0.127621993f, -0.0763639957f}),
                     -0.5f);
        return fma(n, ln2_hi, f + fma(f * f, r, n * ln2_lo));
    }

    /** n = x·c rounded to an integer: the sum with 1.5·2^23 has no room for a fraction, and holds n in its low bits,
     * from where a shift takes it to the exponent. Needs -126 <= n + bias <= 127. */
    Power nearest_power(const Expr &x, const Expr &c, int bias) const {
        const float magic = 12582912.0f + 127 + bias;
        Expr m = fma(x, c, magic);
        return {m - magic, float_of(bits(m) << 23)};
    }

    /** The polynomial of e^-r, |r| <= ½ ln 2: right to a fortieth of an ULP. */
    static Coefficients exp_minus_coefficients() {
        return {1.0f, -1.0f, 0.49999994f, -0.166665211f, 0.0416682661f, -0.00836867746f, 0.00138207339f};
    }

    /** e^-x = m·2^n for n = -x·log2 e rounded. In f32 by e^-r, r = x + n·ln 2 with ln 2 in two parts (Cody & Waite 1980)
     *  and the coefficients that make the error of the whole function smallest. */
    Expr exp_minus(const Expr &x, const Expr &n, const Coefficients &f32) const {
        if (result != DType::f32) {
            return exp2_fraction(remainder(x, -log2e, -log2e_lo, n));
        }
        return polynomial(fma(n, ln2_lo, fma(n, ln2_hi, x)), f32);
    }

    /** x·(c + c_lo) - n, for n near x·c. */
    Expr remainder(const Expr &x, const Expr &c, const Expr &c_lo, const Expr &n) const {
        if (result != DType::f32) {
            return fma(x, c, n * -1.0f);
        }
        return fma(x, c_lo, fma_exact(x, c, n * -1.0f));
    }

    /** 2^f, |f| <= ½. */
    Expr exp2_fraction(const Expr &f) const {
        return polynomial(f, of_result<Coefficients>(
                                 {1.0f, 0.693147004f, 0.240222454f, 0.0555071086f, 0.00967139285f, 0.00132697227f},
                                 {0.999999285f, 0.693121791f, 0.24024725f, 0.0559183136f, 0.00957066659f},
                                 {0.999927819f, 0.693261445f, 0.2426157f, 0.0551709533f}));
    }

    /** 4^f, |f| <= ½. */
    Expr exp4_fraction(const Expr &f) const {
        return polynomial(f, of_result<Coefficients>(
                                 {1.0f, 1.38629448f, 0.960906744f, 0.444029331f, 0.153869405f, 0.042692937f,
                                  0.0100134723f, 0.00191074307f},
                                 {1.00000393f, 1.38626778f, 0.960585296f, 0.444416642f, 0.157503366f, 0.0419369899f},
                                 {0.999954998f, 1.38554347f, 0.962229192f, 0.457020491f, 0.150830373f}));
    }

    /** x·(-2√(2/π)·log2 e)(1 + 0.044715x²) = x·g = n + f. Without the rounding error of g, which is put back into f,
     * the negative tail of gelu_tanh would err by 120 ULP. */
    Cubic cubic_exponent(const Expr &x, int bias) const {
        const float a = -2.30220819f, b = -0.102943242f;
        Expr s = x * x;
        Expr g = fma(s, b, a);
        Power p = nearest_power(x, g, bias);
        if (result != DType::f32) {
            return {p, fma(x, g, p.n * -1.0f)};
        }
        return {p, fma(x, fma_exact(s, b, a - g), fma_exact(x, g, p.n * -1.0f))};
    }

    /** low/(1 + e^-y) for e^-y = m·2^n, p holding 2^(n - 32), as silu explains; low is v but for a bound below. */
    Expr gated(const Expr &v, const Expr &low, const Expr &m, const Power &p) const {
        const float unit = 0x1p-32f;
        return float_of(Halide::min(bits(v), bits(low / fma(m, p.scale, unit) * unit)));
    }

    /** z² = -2n·ln 2 + r with the rounding error of z² added to r, and 1 + q = e^(-r/2), |r| <= ln 2. Products are
     * taken as a + a·q, so that 1 + q itself is never rounded. */
    Gauss gauss(const Expr &x) const {
        Expr z = at_most(absolute(x), 14.6f);
        Expr s = z * z;
        Power p = nearest_power(s, -0.5f * log2e, 32);
        if (result != DType::f32) {
            return {z, exp2_fraction(remainder(s, -0.5f * log2e, -0.5f * log2e_lo, p.n)), p.scale};
        }
        Expr r = has_fma ? fma(p.n, 2 * ln2, s) : fma(p.n, 2 * ln2_lo, fma(p.n, 2 * ln2_hi, s));
        r = r + fma_exact(z, z, s * -1.0f);
        Expr q =
            r * polynomial(r, {-0.5f, 0.124999985f, -0.0208331514f, 0.00260426663f, -0.000261521171f, 2.15948967e-05f});
        return {z, q, p.scale};
    }

    Expr times_gauss(const Expr &a, const Gauss &g) const { return result == DType::f32 ? fma(a, g.q, a) : a * g.q; }

    // R is Mills' ratio over √(2π), so that Φ(-z) = e^(-z²/2)·R(z): a rational of degree 4/5,
    // R(z) = numerator/denominator/gauss_unit. Both carry a common factor of 1.203125 (the numerator gauss_unit
    // besides, for the tail beyond 2^-126), which makes the roundings smallest where GELU is a little less than a power
    // of two.
    static constexpr float mills_numerator_0 = 0.6015625f * gauss_unit, mills_denominator_0 = 1.203125f;

    Expr mills_numerator_rest(const Expr &z) const {
        const float u = gauss_unit;
        return polynomial(z, {0.520253599f * u, 0.215084329f * u, 0.0470406935f * u, 0.00466933148f * u});
    }

    Expr mills_denominator_rest(const Expr &z) const {
        return polynomial(z, {2.00046229f, 1.42474139f, 0.550628781f, 0.117922954f, 0.0117041012f});
    }

    Expr mills_numerator(const Expr &z) const {
        const float u = gauss_unit;
        if (result != DType::f32) {
            return polynomial(z, of_result<Coefficients>({}, {0.500004709f * u, 0.259841949f * u, 0.055135563f * u},
                                                         {0.500012577f * u, 0.279205114f * u, 0.062920779f * u}));
        }
        return fma(mills_numerator_rest(z), z, mills_numerator_0);
    }

    Expr mills_denominator(const Expr &z) const {
        if (result != DType::f32) {
            return polynomial(z, of_result<Coefficients>({}, {1.0f, 1.31789756f, 0.659954846f, 0.137782663f},
                                                         {1.0f, 1.35707283f, 0.704786241f, 0.157551989f}));
        }
        return fma(mills_denominator_rest(z), z, mills_denominator_0);
    }

    /** |x|·Φ(-|x|) without FMA. Twice as many roundings as with it would add up to an error of 5.2, so the last step of
     * both polynomials, the product and the quotient carry theirs along. */
    Expr gelu_tail_without_fma(const Gauss &g) const {
        Pair numerator = multiply_add(mills_numerator_rest(g.z), g.z, mills_numerator_0);
        Pair denominator = multiply_add(mills_denominator_rest(g.z), g.z, mills_denominator_0);
        Pair t = add(numerator.high, numerator.high * g.q);
        Expr z = g.scale * g.z, product = t.high * z, quotient = product / denominator.high;
        Expr rest = fma_exact(quotient * -1.0f, denominator.high, product) + fma_exact(t.high, z, product * -1.0f) +
                    (t.low + numerator.low) * z - quotient * denominator.low;
        return quotient + rest / denominator.high;
    }

    static Expr select_below_zero(const Expr &x, const Expr &below, const Expr &otherwise) {
        return Halide::select(Halide::reinterpret<int32_t>(x) < 0, below, otherwise);
    }

    /** t·unit for x < 0, 1 - t·unit otherwise. */
    Expr mirrored(const Expr &x, const Expr &t, const Expr &unit) const {
        return select_below_zero(x, t * unit, fma(t * -1.0f, unit, 1.0f));
    }

    /** w·2^40 for w = 2^(z(c + c_lo)), which keeps its bits where w is denormal. */
    Expr scaled_power(const Expr &z, const Expr &c, const Expr &c_lo) const {
        Power p = nearest_power(z, c, 40);
        return exp2_fraction(remainder(z, c, c_lo, p.n)) * p.scale;
    }

    /** 1 + w from w·2^40. */
    Expr one_plus(const Expr &w) const { return fma(w, 0x1p-40f, 1.0f); }

    /** The formula at silu_derivative, from w·2^40. */
    Expr gate_slope(const Expr &x, const Expr &w, const Expr &t) const {
        Expr h = one_plus(w);
        return mirrored(x, w * (h - t) / (h * h), 0x1p-40f);
    }

    /** x·σ(y) = x·w/(1 + w) for x < 0, x/(1 + w) otherwise, from w·2^40 and below·unit = x·w. */
    Expr gate(const Expr &x, const Expr &below, const Expr &w, float unit) const {
        return select_below_zero(x, below, x) / one_plus(w) * select_below_zero(x, unit, 1.0f);
    }

    /** w·2^40 with w = 2^(|x|(c + c_lo)). */
    Expr logistic_power(const Expr &x, float c, float c_lo, float limit) const {
        return scaled_power(at_most(absolute(x), limit), c, c_lo);
    }

    /** w/(1 + w)²·2^40·unit, from w·2^40. */
    Expr logistic_bump(const Expr &w, float unit) const {
        Expr h = one_plus(w);
        return w / (h * h) * unit;
    }

    DType result;
    bool is_gpu;
};

}  // namespace halyard

#endif
