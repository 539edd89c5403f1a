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
    using Number = Float;
    static constexpr int x_inputs = 1, x_row = x_pitch;

    /** Sums of one panel overlap enough from five rows on, and leave registers for those of a group beside the tile's. */
    static constexpr int tile_panels(int rows) { return rows == 1 ? 8 : rows <= 4 ? 4 : 1; }
    static constexpr bool sums_stay(int) { return true; }

    /** Numbers are made while others are multiplied. */
    static constexpr bool tiles_share_numbers(int) { return false; }

    template<int bits, int rows>
    struct Numbers : ByteNumbers<rows == 1> {
        HALYARD_AVX512_INLINE explicit Numbers(uint32_t flip) : ByteNumbers<rows == 1>(flip) {}
    };
};

template<int rows>
struct CodeVector::Numbers<4, rows> {
    HALYARD_AVX512_INLINE explicit Numbers(uint32_t)
        : table(_mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7)) {}
    HALYARD_AVX512_INLINE Int prepared(Int word) const { return word; }
    template<int input>
    HALYARD_AVX512_INLINE Float of(Int word) const {
        return _mm512_permutexvar_ps(_mm512_srli_epi32(word, code_shift(4, input)), table);
    }

    const Float table;
};

}  // namespace
}  // namespace halyard::avx512

#define HALYARD_CODES_ISA avx512
#define HALYARD_CODES_TARGET HALYARD_AVX512
#include "cpu/linear/code_tiles.h"

HALYARD_CODES_KERNELS_TO_8(matmul_codes, 4, avx512)
HALYARD_CODES_KERNELS_TO_8(matmul_codes, 8, avx512)

#undef HALYARD_CODES_ISA
#undef HALYARD_CODES_TARGET
