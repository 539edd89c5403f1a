// The GEMM kernels of codes of 4 and 8 bits on AVX2, of 1 to 6 rows.
#include <cstdint>

#include "cpu/linear/avx2/vectors.h"
#include "layout/matmul.h"

namespace halyard::avx2 {
namespace {

struct CodeVector : Avx2 {
    using X = float;
    using Number = Float;
    static constexpr int x_inputs = 1, x_row = x_pitch;

    /** The sums of a group take 4 to 12 of 16 registers. */
    static constexpr int tile_panels(int rows) { return rows <= 2 ? 2 : 1; }
    /** Sums of two and six rows would go to the stack. */
    static constexpr bool sums_stay(int rows) { return rows != 2 && rows != 6; }

    /** To make numbers takes half as long as to multiply four rows with them. Where there are several tiles, these have four rows or more. */
    static constexpr bool tiles_share_numbers(int rows) { return rows >= 4; }

    template<int bits, int>
    struct Numbers {
        HALYARD_AVX2_INLINE explicit Numbers(uint32_t flip) : flip(_mm256_set1_epi32(static_cast<int>(flip))) {}
        HALYARD_AVX2_INLINE Int prepared(Int word) const { return _mm256_xor_si256(word, flip); }
        template<int input>
        HALYARD_AVX2_INLINE Float of(Int word) const {
            constexpr int above = 32 - bits - code_shift(bits, input);
            return _mm256_cvtepi32_ps(_mm256_srai_epi32(above > 0 ? _mm256_slli_epi32(word, above) : word, 32 - bits));
        }

        const Int flip;
    };
};

}  // namespace
}  // namespace halyard::avx2

#define HALYARD_CODES_ISA avx2
#define HALYARD_CODES_TARGET HALYARD_AVX2
#include "cpu/linear/code_tiles.h"

HALYARD_CODES_KERNELS(matmul_codes, 4, avx2)
HALYARD_CODES_KERNELS(matmul_codes, 8, avx2)

#undef HALYARD_CODES_ISA
#undef HALYARD_CODES_TARGET
