// Where words of 32 bits hold the codes of quantized weights: what the kernels that read them and the code that writes them
// must agree on.
#ifndef HALYARD_RUNTIME_LAYOUT_CODES_H
#define HALYARD_RUNTIME_LAYOUT_CODES_H

#include <cstdint>

namespace halyard {

/** What is stored for a group of inputs, see layout/code_panels.h; in the order of halyard_scale_kind. */
enum class ScaleKind : uint8_t { plain, zero, minimum, two_levels, two_levels_signed };

/** Inputs that have one d, of scales of two levels. */
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

/** The bit of a float from which on kernels lay codes over its mantissa, and what that makes them larger by. Times a scale in
 *  16 bits, the sum of that and a zero is exact, also where it is 16 times as large. */
constexpr int code_place(int bits) {
    return bits == 8 ? 15 : 16;
}
constexpr float code_raise(int bits) {
    return static_cast<float>(1 << (23 - code_place(bits)));
}

/** What scales are expanded to before products and widening: for each group of inputs and panel three vectors of f32, with
 *  which a weight is fma(code - zero, scale, offset), rounded once. */
enum ScaleVector { scale_zero, scale_scale, scale_offset, scale_vectors };

}  // namespace halyard

#endif
