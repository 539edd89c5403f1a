// Where words of 32 bits hold the codes of quantized weights: what the kernels that read them and the code that writes them
// must agree on.
#ifndef HALYARD_RUNTIME_LAYOUT_CODES_H
#define HALYARD_RUNTIME_LAYOUT_CODES_H

#include <cstdint>

namespace halyard {

/** What is stored for a group of inputs, see layout/code_panels.h; in the order of halyard_scale_kind. */
enum class ScaleKind : uint8_t { plain, zero, minimum, two_levels, two_levels_signed };

/** Inputs of a super-block: scales of two levels have one d for each. */
constexpr int super_group = 256;

/** Inputs of a row of a panel of codes of 8 or 4 bits, which has a word for each column. */
constexpr int code_row_inputs(int bits) {
    return 32 / bits;
}

/** The lowest bit of an input's code in its word. Bytes of 8 bits come in order; of 4 bits byte j holds inputs j and 4 + j, so
 *  that half a row at a time is what instructions on bytes take. */
template<typename Index>
constexpr Index code_shift(int bits, const Index &input) {
    return bits == 8 ? input * 8 : input % 4 * 8 + input / 4 * 4;
}

/** Kernels make a float of a quantized value q by setting it into the mantissa of a constant, code_raise(), from bit
 *  code_place() on: the float is code_raise() + q. The zero point is raised by the same constant. A zero
 *  point that is raised by this or by 16 times as much has an exact f32 product with a scale of 16 bits. */
constexpr int code_place(int bits) {
    return bits == 8 ? 15 : 16;
}
constexpr float code_raise(int bits) {
    return static_cast<float>(1 << (23 - code_place(bits)));
}

/** The vectors to which scales are expanded before kernels multiply or widen quantized weights: three of f32 for each group of
 *  inputs of a panel. A weight is fma(q - zero, scale, offset), rounded once. */
enum ScaleVector { scale_zero, scale_scale, scale_offset, scale_vectors };

}  // namespace halyard

#endif
