// The GEMM kernels of codes of 4 and 8 bits on AVX-512, of 1 to 8 rows.
//
// A code of 4 bits becomes a number by one instruction that Halide does not make: vpermps looks it up in a register of 16 numbers, by
// the lowest four bits of a lane, whatever lies above them.
#include <cstdint>

#include "cpu/linear/avx512/vectors.h"
#include "layout/matmul.h"

namespace halyard::avx512 {
namespace {

struct CodeVector : Avx512 {
    using X = float;
    static constexpr int x_row = x_pitch;

    /** Sums of one panel overlap enough from five rows on, and leave registers for those of a group beside the tile's. */
    static constexpr int tile_panels(int rows) { return rows == 1 ? 8 : rows <= 4 ? 4 : 1; }
    static constexpr bool sums_stay(int) { return true; }

    /** Numbers are made while others are multiplied. */
    static constexpr bool tiles_share_numbers(int) { return false; }

    template<int bits>
    struct Numbers;
};

template<>
struct CodeVector::Numbers<4> {
    HALYARD_AVX512_INLINE explicit Numbers(uint32_t)
        : table(_mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7)) {}
    HALYARD_AVX512_INLINE Int prepared(Int word) const { return word; }
    template<int input>
    HALYARD_AVX512_INLINE Float of(Int word) const {
        return _mm512_permutexvar_ps(_mm512_srli_epi32(word, code_shift(4, input)), table);
    }

    const Float table;
};

template<>
struct CodeVector::Numbers<8> {
    HALYARD_AVX512_INLINE explicit Numbers(uint32_t flip) : flip(_mm512_set1_epi32(static_cast<int>(flip))) {}
    HALYARD_AVX512_INLINE Int prepared(Int word) const { return _mm512_xor_si512(word, flip); }
    template<int input>
    HALYARD_AVX512_INLINE Float of(Int word) const {
        return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(word, 24 - code_shift(8, input)), 24));
    }

    const Int flip;
};

}  // namespace
}  // namespace halyard::avx512

#define HALYARD_CODES_ISA avx512
#define HALYARD_CODES_TARGET HALYARD_AVX512
#include "cpu/linear/code_tiles.h"

#define HALYARD_CODES_KERNELS(bits)                                                                                    \
    HALYARD_CODES_KERNEL(avx512, bits, f16, 1)                                                                         \
    HALYARD_CODES_KERNEL(avx512, bits, bf16, 1)                                                                        \
    HALYARD_CODES_KERNEL(avx512, bits, f32, 1)                                                                         \
    HALYARD_CODES_KERNEL(avx512, bits, f32, 2)                                                                         \
    HALYARD_CODES_KERNEL(avx512, bits, f32, 3)                                                                         \
    HALYARD_CODES_KERNEL(avx512, bits, f32, 4)                                                                         \
    HALYARD_CODES_KERNEL(avx512, bits, f32, 5)                                                                         \
    HALYARD_CODES_KERNEL(avx512, bits, f32, 6)                                                                         \
    HALYARD_CODES_KERNEL(avx512, bits, f32, 7)                                                                         \
    HALYARD_CODES_KERNEL(avx512, bits, f32, 8)
HALYARD_CODES_KERNELS(4)
HALYARD_CODES_KERNELS(8)

#undef HALYARD_CODES_ISA
#undef HALYARD_CODES_TARGET
#undef HALYARD_CODES_KERNELS
