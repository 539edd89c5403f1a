// Elementary functions over f32 expressions, and the 16-bit storage conversions.
#ifndef HALYARD_GENERATORS_MATH_H
#define HALYARD_GENERATORS_MATH_H

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "Halide.h"

namespace halyard {

/** Elementary functions and activations as f32 expressions, with their derivatives.
 *
 * Every function is straight-line code: fused multiply-adds, clamps, one shift and at most one division, no table, no
 * branch. The target must carry Target::StrictFloat: the compiler then neither contracts nor reassociates, each
 * operation below is one correctly rounded IEEE operation, and all targets with FMA give the same bits. A target
 * without FMA (the x86 baseline) gives other bits within the same bounds.
 *
 * Bounds are the largest error found over every finite f32 input, in ULP: the spacing of floats at the true result,
 * 2^-149 where that is denormal. NaN in gives NaN out; a denormal input or result is not flushed. */
class Math {
public:
    using Expr = Halide::Expr;

    explicit Math(const Halide::Target &target)
        : fused(target.arch != Halide::Target::X86 || target.has_feature(Halide::Target::FMA) ||
                target.has_gpu_feature()) {
        if (!target.has_feature(Halide::Target::StrictFloat)) {
            throw Halide::CompileError("halyard::Math needs a target with the feature strict_float");
        }
    }

    /** a·b + c, rounded once where the target has FMA and twice on the x86 baseline. The scalar intrinsic is what
     * Halide lets through; LLVM's SLP vectorizer joins the lanes into full-width instructions. */
    Expr fma(Expr a, Expr b, Expr c) const {
        if (!fused) {
            return a * b + c;
        }
        using Halide::Internal::Call;
        return Call::make(Halide::Float(32), "llvm.fma.f32", {a, b, c}, Call::PureExtern);
    }

    Expr exp(Expr v) const {
        Expr x = at_most(at_least(v, -105.0f), 89.0f);
        Power p = nearest_power(x, 0.5f * log2e, 0);
        Expr r = fma(p.n, -2 * ln2_hi, x);
        r = fma(p.n, -2 * ln2_lo, r);
        Expr m = polynomial(r, {1.0f, 1.0f, 0.500000358f, 0.16666618f, 0.041661229f, 0.00833593495f, 0.00141047779f,
                                0.000196297508f});
        return m * p.scale * p.scale;
    }

    Expr sigmoid(Expr v) const {
        const float unit = 0x1p-24f;
        Expr x = at_most(at_least(v, -104.0f), 64.0f);
        Power p = nearest_power(x, -log2e, -24);
        Expr r = fma(p.n, ln2_lo, fma(p.n, ln2_hi, x));
        Expr m = polynomial(r, {1.0f, -1.0f, 0.49999994f, -0.166665211f, 0.0416682661f, -0.00836867746f, 0.00138207339f});
        return unit / fma(m, p.scale, unit);
    }

    Expr silu(Expr v) const {
        const float unit = 0x1p-32f;
        Expr low = at_least(v, -110.0f);
        Expr x = at_most(low, 64.0f);
        Power p = nearest_power(x, -log2e, -32);
        return smaller_magnitude(v, low / fma(exp_minus(x, p.n), p.scale, unit) * unit);
    }

    Expr gelu_sigmoid(Expr v) const {
        const float unit = 0x1p-32f;
        Expr low = at_least(v, -64.6f);
        Expr x = at_most(low, 32.0f);
        Power p = nearest_power(x, -quick_hi, -32);
        Expr f = fma(x, -quick_lo, fma_exact(x, -quick_hi, -p.n));
        return smaller_magnitude(v, low / fma(exp2_fraction(f), p.scale, unit) * unit);
    }

    Expr gelu_tanh(Expr v) const {
        const float unit = 0x1p-32f;
        Expr low = at_least(v, -10.9f);
        Expr x = at_most(low, 8.0f);
        Cubic c = cubic_exponent(x, -32);
        return smaller_magnitude(v, low / fma(exp2_fraction(c.f), c.p.scale, unit) * unit);
    }

    Expr swish(Expr v, Expr beta) const {
        Expr sign = bits(beta) & u32(0x80000000u);
        Expr b = float_of(bits(beta) ^ sign);
        Expr c = b * (-0.5f * log2e);
        Expr c_lo = fma(b, -0.5f * log2e_lo, fma_exact(b, -0.5f * log2e, -c));
        Expr low = at_least(float_of(bits(v) ^ sign), at_least(-174.0f / b, -largest));
        Expr x = at_most(low, at_most(44.0f / b, largest));
        Power p = nearest_power(x, c, 0);
        Expr f = fma(x, c_lo, fma_exact(x, c, -p.n));
        Expr m = polynomial(f, {1.0f, 1.38629448f, 0.960906744f, 0.444029331f, 0.153869405f, 0.042692937f,
                                0.0100134723f, 0.00191074307f});
        Expr inverse = float_of(u32(254u << 23) - bits(p.scale));
        return float_of(bits(low / fma(m, p.scale, inverse) * inverse) ^ sign);
    }

    Expr tanh(Expr v) const {
        Expr x = at_most(at_least(v, -10.0f), 10.0f);
        Power p = nearest_power(x, 2 * log2e, 0);
        Expr r = fma(p.n, -0.5f * ln2, x);
        Expr q = r * polynomial(r, {2.0f, 1.99999988f, 1.33332372f, 0.666678965f, 0.267720371f, 0.0887722075f});
        Expr em1 = fma(q, p.scale, (1.0f - p.scale) * -1.0f);
        return em1 / (em1 + 2.0f);
    }

    Expr erf(Expr v) const {
        Gauss g = gauss(v * 1.41421356f);
        Expr magnitude = fma(grown(g, mills_p(g)) / mills_q(g), g.scale * -2.0f, 1.0f);
        Expr s = v * v;
        Expr small = v * polynomial(s, {1.12837911f, -0.376121193f, 0.112765558f, -0.0265071746f, 0.0044709472f,
                                        -0.000231676764f});
        Expr large = float_of(bits(magnitude) | (bits(v) & u32(0x80000000u)));
        return Halide::select(Halide::abs(v) < 0.75f, small, large);
    }

    Expr normal_cdf(Expr v) const {
        Gauss g = gauss(v);
        return mirrored(v, grown(g, mills_p(g)) / mills_q(g), g.scale);
    }

    Expr relu(Expr x) const {
        return at_least(x, 0.0f);
    }

    Expr gelu(Expr v) const {
        Gauss g = gauss(v);
        return fma(grown(g, mills_p(g)) / mills_q(g), g.scale * g.z * -1.0f, relu(v));
    }

    Expr relu_derivative(Expr x) const {
        return Halide::select(Halide::is_nan(x), x, Halide::select(x > 0.0f, 1.0f, 0.0f));
    }
    Expr exp_derivative(Expr x) const {
        return exp(x);
    }
    Expr sigmoid_derivative(Expr v) const {
        return sech2(v, -log2e, -log2e_lo, 106.0f, 0x1p-40f);
    }
    Expr tanh_derivative(Expr v) const {
        return sech2(v, -2 * log2e, -2 * log2e_lo, 53.0f, 0x1p-38f);
    }
    Expr silu_derivative(Expr v) const {
        Expr z = at_most(Halide::abs(v), 110.0f);
        Power p = nearest_power(z, -log2e, 40);
        return gate_slope(v, exp_minus(z, p.n) * p.scale, z);
    }
    Expr gelu_sigmoid_derivative(Expr v) const {
        Expr z = at_most(Halide::abs(v), 64.6f);
        Power p = nearest_power(z, -quick_hi, 40);
        Expr f = fma(z, -quick_lo, fma_exact(z, -quick_hi, -p.n));
        return gate_slope(v, exp2_fraction(f) * p.scale, 1.702f * z);
    }
    Expr gelu_tanh_derivative(Expr v) const {
        Expr z = at_most(Halide::abs(v), 11.0f);
        Cubic c = cubic_exponent(z, 40);
        return gate_slope(v, exp2_fraction(c.f) * c.p.scale, z * fma(z * z, 0.214064454f, 1.59576917f));
    }
    Expr swish_derivative(Expr v, Expr beta) const {
        Expr b = Halide::abs(beta);
        Expr c = b * -log2e;
        Expr c_lo = fma(b, -log2e_lo, fma_exact(b, -log2e, -c));
        Expr z = at_most(Halide::abs(v), at_most(110.0f / b, largest));
        Power p = nearest_power(z, c, 40);
        Expr f = fma(z, c_lo, fma_exact(z, c, -p.n));
        return gate_slope(float_of(bits(v) ^ bits(beta)), exp2_fraction(f) * p.scale, b * z);
    }
    Expr gelu_derivative(Expr v) const {
        Gauss g = gauss(v);
        Expr n = polynomial(g.z,
                            {1.30967237e-10f, -2.55705873e-11f, -1.23059993e-10f, -8.03691627e-11f, -2.31060154e-11f, -2.75184216e-12f});
        Expr d = polynomial(g.z, {1.125f, 1.57559025f, 0.894705892f, 0.248764649f, 0.0296258591f});
        return mirrored(v, grown(g, n) / d, g.scale);
    }

private:
    /** An integer n as a float, and 2^(n + bias). */
    struct Power {
        Expr n, scale;
    };
    struct Cubic {
        Power p;
        Expr f;
    };
    struct Gauss {
        Expr z, growth, scale;
    };

    static constexpr float log2e = 1.44269502f;  // rounded down by log2e_lo
    static constexpr float log2e_lo = 1.92596299e-8f;
    static constexpr float ln2 = 0.693147182f;
    static constexpr float ln2_hi = 0.693145752f;  // 17 bits: its product with any n here is exact
    static constexpr float ln2_lo = 1.42860677e-6f;
    static constexpr float quick_hi = 2.45546699f;  // 1.702·log2(e)
    static constexpr float quick_lo = -2.61094989e-8f;
    static constexpr float largest = 3.40282347e38f;

    static Expr u32(uint32_t value) {
        return Halide::Internal::make_const(Halide::UInt(32), value);
    }
    static Expr bits(const Expr &x) {
        return Halide::reinterpret<uint32_t>(x);
    }
    static Expr float_of(const Expr &x) {
        return Halide::reinterpret<float>(x);
    }
    /** Clamps in the form that is one instruction and lets NaN through, which Halide's min and max do not promise. */
    static Expr at_least(const Expr &x, const Expr &low) {
        return Halide::select(x < low, low, x);
    }
    static Expr at_most(const Expr &x, const Expr &high) {
        return Halide::select(x > high, high, x);
    }
    static Expr smaller_magnitude(const Expr &a, const Expr &b) {
        return float_of(Halide::min(bits(a), bits(b)));
    }
    Expr polynomial(const Expr &x, std::initializer_list<float> coefficients) const {
        const std::vector<float> c(coefficients);
        Expr p = c.back();
        for (size_t i = c.size() - 1; i-- > 0;) {
            p = fma(p, x, c[i]);
        }
        return p;
    }
    Expr product_error(const Expr &a, const Expr &b, const Expr &ab) const {
        const Expr mask = u32(0xfffff000u);
        Expr ah = float_of(bits(a) & mask), bh = float_of(bits(b) & mask);
        Expr al = a - ah, bl = b - bh;
        return ((ah * bh - ab) + ah * bl + al * bh) + al * bl;
    }
    Expr fma_exact(const Expr &a, const Expr &b, const Expr &c) const {
        if (fused) {
            return fma(a, b, c);
        }
        Expr ab = a * b;
        return (ab + c) + product_error(a, b, ab);
    }
    Power nearest_power(const Expr &x, const Expr &c, int bias) const {
        const float magic = 12582912.0f + 127 + bias;
        Expr m = fma(x, c, magic);
        return {m - magic, float_of(bits(m) << 23)};
    }
    Expr exp_minus(const Expr &x, const Expr &n) const {
        Expr r = fma(n, ln2_hi, x);
        r = fma(n, ln2_lo, r);
        return polynomial(r, {1.0f, -0.999999702f, 0.499991477f, -0.166676521f, 0.0418981761f, -0.00828936044f});
    }
    Expr exp2_fraction(const Expr &f) const {
        return polynomial(f, {1.0f, 0.693147004f, 0.240222454f, 0.0555071086f, 0.00967139285f, 0.00132697227f});
    }
    Cubic cubic_exponent(const Expr &x, int bias) const {
        const float a = -2.30220819f, b = -0.102943242f;
        Expr s = x * x;
        Expr g = fma(s, b, a);
        Power p = nearest_power(x, g, bias);
        Expr f = fma(x, fma_exact(s, b, a - g), fma_exact(x, g, -p.n));
        return {p, f};
    }
    Gauss gauss(const Expr &v) const {
        Expr z = at_most(Halide::abs(v), 14.6f);
        Expr s = z * z;
        Power p = nearest_power(s, -0.5f * log2e, 32);
        Expr r = fused ? fma(p.n, 2 * ln2, s) : (s + p.n * (2 * ln2_hi)) + p.n * (2 * ln2_lo);
        r = r + fma_exact(z, z, -s);
        Expr q = r * polynomial(r, {-0.5f, 0.124999985f, -0.0208331514f, 0.00260426663f, -0.000261521171f, 2.15948967e-05f});
        return {z, q, p.scale};
    }
    Expr grown(const Gauss &g, const Expr &x) const {
        return fma(x, g.growth, x);
    }
    Expr mills_p(const Gauss &g) const {
        return polynomial(g.z, {1.38243195e-10f, 1.19557961e-10f, 4.9427934e-11f, 1.08103006e-11f, 1.07302296e-12f});
    }
    Expr mills_q(const Gauss &g) const {
        return polynomial(g.z, {1.1875f, 1.97448313f, 1.40623975f, 0.543478429f, 0.116391771f, 0.0115518654f});
    }
    Expr mirrored(const Expr &x, const Expr &t, const Expr &unit) const {
        return Halide::select(Halide::reinterpret<int32_t>(x) < 0, t * unit, fma(t * -1.0f, unit, 1.0f));
    }
    Expr gate_slope(const Expr &x, const Expr &w, const Expr &y) const {
        Expr h = fma(w, 0x1p-40f, 1.0f);
        return mirrored(x, w * (h - y) / (h * h), 0x1p-40f);
    }
    Expr sech2(const Expr &v, float c, float c_lo, float limit, float unit) const {
        Expr z = at_most(Halide::abs(v), limit);
        Power p = nearest_power(z, c, 40);
        Expr f = fma(z, c_lo, fma_exact(z, c, -p.n));
        Expr w = exp2_fraction(f) * p.scale;
        Expr h = fma(w, 0x1p-40f, 1.0f);
        return w / (h * h) * unit;
    }

    bool fused;
};

inline Halide::Expr bf16_to_f32(Halide::Expr x) {
    return Halide::reinterpret<float>(Halide::cast<uint32_t>(x) << 16);
}

inline Halide::Expr f32_to_bf16(Halide::Expr x) {
    Halide::Expr u = Halide::reinterpret<uint32_t>(x);
    Halide::Expr even = u + 0x7fff + ((u >> 16) & 1);
    return Halide::cast<uint16_t>(Halide::select(Halide::is_nan(x), u | 0x400000, even) >> 16);
}

}  // namespace halyard

#endif
