// Quantized weights: codes in words (runtime/layout/codes.h), and what they are with the scales of their group.
#ifndef HALYARD_GENERATORS_CODES_H
#define HALYARD_GENERATORS_CODES_H

#include "Halide.h"
#include "math.h"
#include "runtime/layout/codes.h"

namespace halyard {

class Codes {
public:
    Codes(int bits, const Halide::Target &target) : bits_(bits), target_(target) {}

    /** Inputs of a row of a panel. */
    int inputs() const { return code_row_inputs(bits_); }

    /** The weight q * scale + offset, where q is the quantized value less its zero point. `zero` is raised by code_raise(), as q
     *  is. An undefined `zero` stands for 0, and then `offset` makes up for the raised q. */
    Halide::Expr weight(const Halide::Expr &word, const Halide::Expr &input, const Halide::Expr &zero,
                        const Halide::Expr &scale, const Halide::Expr &offset) const {
        using namespace Halide;
        // The bits of a code become some of the mantissa of a number with the exponent of 2^(23 - place), which takes no
        // conversion: that power and the code. Half of the inputs of 4 bits have another place, 4 bits lower, so that two of
        // them share a shift or need none.
        const Expr lower = input / 4 * 4;
        const Expr place = code_place(bits_) - lower;
        const Expr exponent = cast<uint32_t>(127 + 23 - place) << 23, mask = cast<uint32_t>((1 << bits_) - 1) << place;
        const Expr code = reinterpret<float>(((word << (place - code_shift(bits_, input))) & mask) | exponent);
        const auto lowered = [&](const Expr &as_it_is, const Expr &by_more) {
            return select(lower > 0, by_more, as_it_is);
        };
        const float more = code_raise(bits_) * 15;
        if (zero.defined()) {
            return fused(strict_float(code - lowered(zero, strict_float(zero + more))), scale, offset);
        }
        return fused(code, scale, lowered(offset, fused(-more, scale, offset)));
    }

    /** a * b + c, rounded once. It calls LLVM's fma: where LLVM may contract a plain product and sum, it may also change the order
     *  in which the result is added to others. */
    Halide::Expr fused(const Halide::Expr &a, const Halide::Expr &b, const Halide::Expr &c) const {
        using namespace Halide;
        return target_.arch != Target::X86 || target_.has_feature(Target::FMA)
                   ? Internal::Call::make(Float(32), "llvm.fma.f32", {a, b, c}, Internal::Call::PureExtern)
                   : strict_float(a * b + c);
    }

    /** The group of a row, of so many that scales are there for. */
    static Halide::Expr group(const Halide::Expr &row, const Halide::Expr &shift, const Halide::Expr &groups) {
        // Unsigned shifts by as much take no instructions for those by less than 0.
        return Halide::unsafe_promise_clamped(row >> Halide::cast<uint32_t>(shift), 0, groups - 1);
    }

private:
    const int bits_;
    const Halide::Target target_;
};

}  // namespace halyard

#endif
