// Quantized weights: the signed numbers that words of codes hold (runtime/layout/codes.h).
#ifndef HALYARD_GENERATORS_CODES_H
#define HALYARD_GENERATORS_CODES_H

#include "Halide.h"
#include "runtime/layout/codes.h"

namespace halyard {

class Codes {
public:
    explicit Codes(int bits) : bits_(bits) {}

    /** Inputs of a row of a panel. */
    int inputs() const { return code_row_inputs(bits_); }

    /** The number of one of a word's inputs in f32, exactly; of a word after code_flip(). */
    Halide::Expr number(const Halide::Expr &word, const Halide::Expr &input) const {
        using namespace Halide;
        const Expr to_the_top = 32 - bits_ - code_shift(bits_, input);
        return cast<float>(reinterpret<int32_t>(word << cast<uint32_t>(to_the_top)) >> (32 - bits_));
    }

private:
    const int bits_;
};

}  // namespace halyard

#endif
