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

    /** The code of an input of a row, and 2^bits more, as f32: its bits become the highest ones of the mantissa of a number that
     *  has the exponent of 2^bits, which takes no conversion. */
    Halide::Expr raised(const Halide::Expr &word, const Halide::Expr &input) const {
        using namespace Halide;
        const Expr place = 23 - bits_ - code_shift(bits_, input);
        const uint32_t mask = ((1u << bits_) - 1) << (23 - bits_), exponent = static_cast<uint32_t>(127 + bits_) << 23;
        return reinterpret<float>(((word << place) & mask) | exponent);
    }

    /** The weight. `zero` is 2^bits more too; undefined where it is none. */
    Halide::Expr weight(const Halide::Expr &word, const Halide::Expr &input, const Halide::Expr &zero,
                        const Halide::Expr &scale, const Halide::Expr &offset) const {
        using namespace Halide;
        const Expr code = raised(word, input);
        return contracted(target_, (zero.defined() ? strict_float(code - zero) : code) * scale + offset);
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
