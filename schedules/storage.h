// Storage types: what a tensor's elements are in memory. All arithmetic is f32.
#ifndef HALYARD_SCHEDULES_STORAGE_H
#define HALYARD_SCHEDULES_STORAGE_H

#include <string>

#include "Halide.h"
#include "schedules/dtype.h"
#include "schedules/high_halves.h"

namespace halyard {

/** How elements of a dtype are read and written on a target.
 *
 *  16-bit types that the target cannot convert by an instruction are kept as their bits: Halide emulates them with
 *  slower code, and cannot compile bfloat16_t for CUDA at all. */
class Storage {
public:
    Storage(DType dtype, const Halide::Target &target)
        : dtype_(dtype),
          native_f16_(target.has_feature(Halide::Target::F16C) || target.has_feature(Halide::Target::ARMFp16) ||
                      target.has_feature(Halide::Target::CUDA)),
          converts_only_(target.has_feature(Halide::Target::ARMFp16) && !target.has_feature(Halide::Target::ARMv82a) &&
                         target.has_feature(Halide::Target::StrictFloat)),
          has_avx512_(target.has_feature(Halide::Target::AVX512_Skylake)) {}

    /** The Halide type of the buffer. */
    Halide::Type type() const {
        if (dtype_ == DType::f32) {
            return Halide::Float(32);
        }
        return dtype_ == DType::f16 && native_f16_ ? Halide::Float(16) : Halide::UInt(16);
    }

    /** A stored element as f32; exact. */
    Halide::Expr widen(Halide::Expr stored) const {
        switch (dtype_) {
        case DType::bf16:
            return Halide::reinterpret<float>(Halide::cast<uint32_t>(stored) << 16);
        case DType::f16:
            return native_f16_ ? unnarrowed(Halide::cast<float>(stored)) : f16_bits_to_f32(stored);
        default:
            return stored;
        }
    }

    /** Any f32 value as it is stored: rounded to nearest even, overflow to infinity, NaN to a quiet NaN. */
    Halide::Expr narrow(Halide::Expr value) const {
        if (dtype_ != DType::bf16) {
            return narrow_result(value);
        }
        const Halide::Expr bits = Halide::reinterpret<uint32_t>(value);
        return high_half(Halide::select(Halide::is_nan(value), bits | 0x400000, rounded_to_bf16(value)));
    }

    /** As narrow(), for what arithmetic makes of values of this dtype. Its NaNs are quiet and have no payload in the bits that
     *  bf16 drops, so that rounding cannot carry into their sign: a third fewer instructions. */
    Halide::Expr narrow_result(Halide::Expr value) const {
        switch (dtype_) {
        case DType::bf16:
            return high_half(rounded_to_bf16(value));
        case DType::f16:
            return native_f16_ ? Halide::cast(Halide::Float(16), value) : f32_to_f16_bits(value);
        default:
            return value;
        }
    }

    /** As narrow_result() in bf16, in the upper half of 32 bits of which the lower means nothing. */
    Halide::Expr rounded_to_bf16(const Halide::Expr &value) const {
        using namespace Halide;
        const Expr bits = reinterpret<uint32_t>(value);
        if (has_avx512_) {
            // To choose by a mask what to add takes 0.9 to 0.98 of the time of a kernel that shifts and masks.
            return bits + select((bits & 0x10000) != 0, cast<uint32_t>(0x8000), cast<uint32_t>(0x7fff));
        }
        return bits + 0x7fff + ((bits >> 16) & 1);
    }

private:
    Halide::Expr high_half(const Halide::Expr &word) const {
        return has_avx512_ ? schedules::HighHalves::of(word) : Halide::cast<uint16_t>(word >> 16);
    }

    // ARMv8.0 converts halves but does not compute with them. Halide has one feature, arm_fp16, for both, with which LLVM
    // computes in halves what gives the same result: kernels for ARMv8.0 keep it from that. The canonical form of what a
    // conversion gives is the value itself, and costs an instruction.
    Halide::Expr unnarrowed(const Halide::Expr &x) const {
        using Halide::Internal::Call;
        return converts_only_ ? Call::make(Halide::Float(32), "llvm.canonicalize.f32", {x}, Call::PureExtern) : x;
    }

    // A half's exponent and mantissa, moved to where a float has them, are the half's value times 2^-112; Inf and NaN
    // keep an all-ones exponent by being shifted to it. A multiplication is exact for denormals too.
    static Halide::Expr f16_bits_to_f32(Halide::Expr half) {
        using namespace Halide;
        const Expr bits = cast<int32_t>(half);
        const Expr magnitude = (bits & 0x7fff) << 13;
        const Expr finite = reinterpret<int32_t>(strict_float(reinterpret<float>(magnitude) * 0x1p112f));
        const Expr special = magnitude | 0x7f800000;
        const Expr sign = reinterpret<int32_t>(cast<uint32_t>(half & 0x8000) << 16);  // signed, it would overflow
        return reinterpret<float>(sign | select(magnitude >= 0x0f800000, special, finite));
    }

    // Adding 2^k to a float with |x| < 2^k rounds it, to nearest even, at the bit 2^(k - 23). With k = exponent(x) + 13 that
    // is the last bit of a half's mantissa; k no smaller than -1 makes it the last bit of a denormal half.
    static Halide::Expr f32_to_f16_bits(const Halide::Expr &result) {
        using namespace Halide;
        // By name: Halide's passes would walk it once for each of the places where it stands.
        const std::string name = Internal::unique_name("result");
        const Expr value = Internal::Variable::make(result.type(), name);
        const Expr bits = reinterpret<int32_t>(value);
        const Expr magnitude = bits & 0x7fffffff;
        const Expr exponent = max(magnitude & 0x7f800000, 113 << 23);
        const Expr anchor = exponent + (13 << 23);
        const Expr rounded = strict_float(reinterpret<float>(min(magnitude, 0x477fffff)) + reinterpret<float>(anchor));
        // What the sum holds above the anchor are the half's units, exponent included when it carries.
        const Expr units = reinterpret<int32_t>(rounded) - anchor;
        const Expr finite = units + (((exponent >> 23) - 113) << 10);
        const Expr overflow = select(magnitude > 0x7f800000, 0x7e00 | ((magnitude >> 13) & 0x3ff), 0x7c00);
        const Expr half = select(magnitude >= 0x477ff000, overflow, finite);
        return Internal::Let::make(name, result, cast<uint16_t>(half | ((bits >> 16) & 0x8000)));
    }

    DType dtype_;
    bool native_f16_;
    bool converts_only_;
    bool has_avx512_;
};

}  // namespace halyard

#endif
