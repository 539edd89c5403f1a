// The GEMM kernels of codes of 4 and 8 bits on AVX-512, of 1 to 8 rows.
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
    using Numbers = CodeNumbers<bits, rows == 1>;
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
