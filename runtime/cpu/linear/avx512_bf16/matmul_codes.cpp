// The GEMM kernels of codes of 4 and 8 bits with rows in pairs of bf16, by AVX-512 BF16: of 1 to 8 rows.
#include <cstdint>

#include "cpu/linear/avx512/pair_numbers.h"
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
    using Numbers = PairNumbers<bits, rows <= 6>;
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
