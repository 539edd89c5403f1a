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

/** Kernels take a code q as the signed number c = q - center, which is small and exact in bf16 too: a word is turned into such
 *  numbers in two's complement by an exclusive or with code_flip(). Codes of 8 bits with minima are below 128 and have the center 0. */
constexpr int code_center(int bits, bool has_minima) {
    return bits == 4 ? 8 : has_minima ? 0 : 128;
}
constexpr uint32_t code_flip(int bits, bool has_minima) {
    return bits == 4 ? 0x88888888u : has_minima ? 0 : 0x80808080u;
}

/** Inputs that kernels take at a step, by the bits of what they read: a word of codes (4 or 8), or numbers in f32 (32). */
constexpr int code_step_inputs(int bits) {
    return bits == 4 ? 8 : 4;
}

/** The vectors to which scales are expanded before products: two of f32 for each group of inputs of a panel. A weight is
 *  scale c + offset. */
enum ScaleVector { scale_scale, scale_offset, scale_vectors };

}  // namespace halyard

#endif
