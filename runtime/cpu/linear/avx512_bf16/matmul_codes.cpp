// The GEMM kernels of codes of 4 and 8 bits with rows in pairs of bf16, by AVX-512 BF16: of 1 to 8 rows.
//
// Pairs of codes of 4 bits become pairs of numbers by one instruction that Halide does not make: vpermw looks both up in a register
// of 32 numbers, by the lowest five bits of each half of a lane.
#include <cstdint>

#include "cpu/linear/avx512/vectors.h"
#include "layout/matmul.h"

#define HALYARD_AVX512_BF16 __attribute__((target(HALYARD_AVX512_FEATURES ",avx512bf16")))

namespace halyard::avx512_bf16 {
namespace {

struct CodeVector : Avx512 {
    using X = uint32_t;
    using Number = Int;
    static constexpr int x_inputs = 2, x_row = x_pair_pitch;

    using Avx512::all;
    HALYARD_AVX512_INLINE static Int all(uint32_t pair) { return _mm512_set1_epi32(static_cast<int>(pair)); }
    /** sum += both products of pairs */
    HALYARD_AVX512_BF16 __attribute__((always_inline)) static void add_product(Int a, Int b, Float &sum) {
        sum = _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
    }

    /** As with rows in f32. */
    static constexpr int tile_panels(int rows) { return rows == 1 ? 8 : rows <= 4 ? 4 : 1; }
    static constexpr bool sums_stay(int) { return true; }
    static constexpr bool tiles_share_numbers(int) { return false; }

    template<int bits, int rows>
    struct Numbers;
};

template<int rows>
struct CodeVector::Numbers<4, rows> {
    HALYARD_AVX512_INLINE explicit Numbers(uint32_t) {
        // -8 to 7 in bf16, twice: the fifth bit is another code's.
        alignas(64) static constexpr uint16_t numbers[32] = {
            0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80, 0x0000, 0x3f80, 0x4000,
            0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040,
            0xc000, 0xbf80, 0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0};
        table = _mm512_load_si512(numbers);
        // Bytes 1 and 3 to the lower half, 0 and 2 to the upper one: both then have, from the lowest bits on, their codes of pairs
        // 0, 2, 1 and 3.
        order = _mm512_broadcast_i32x4(_mm_setr_epi8(1, 3, 0, 2, 5, 7, 4, 6, 9, 11, 8, 10, 13, 15, 12, 14));
    }
    HALYARD_AVX512_INLINE Int prepared(Int word) const { return _mm512_shuffle_epi8(word, order); }
    template<int pair>
    HALYARD_AVX512_INLINE Int of(Int halves) const {
        return _mm512_permutexvar_epi16(_mm512_srli_epi16(halves, pair % 2 * 8 + pair / 2 * 4), table);
    }

    Int table, order;
};

template<int rows>
struct CodeVector::Numbers<8, rows> : ByteNumbers<rows <= 6> {
    using OfF32 = ByteNumbers<rows <= 6>;
    HALYARD_AVX512_INLINE explicit Numbers(uint32_t flip) : OfF32(flip) {}
    /** A number in f32 has zeros where the other of a pair goes. */
    template<int pair>
    HALYARD_AVX512_INLINE Int of(Int word) const {
        const Int earlier = _mm512_castps_si512(OfF32::template of<2 * pair>(word)),
                  later = _mm512_castps_si512(OfF32::template of<2 * pair + 1>(word));
        return _mm512_or_si512(earlier, _mm512_srli_epi32(later, 16));
    }
};

}  // namespace
}  // namespace halyard::avx512_bf16

#define HALYARD_CODES_ISA avx512_bf16
#define HALYARD_CODES_TARGET HALYARD_AVX512_BF16
#include "cpu/linear/code_tiles.h"

HALYARD_CODES_KERNELS_TO_8(matmul_pairs_codes, 4, avx512_bf16)
HALYARD_CODES_KERNELS_TO_8(matmul_pairs_codes, 8, avx512_bf16)

#undef HALYARD_CODES_ISA
#undef HALYARD_CODES_TARGET
