// The tiles that the matmul kernels of an instruction set compute.
#ifndef HALYARD_RUNTIME_TILES_H
#define HALYARD_RUNTIME_TILES_H

#include "dispatch.h"
#include "matmul_layout.h"

namespace halyard {

constexpr Kernel tile_kernel(bool tall, int rows) {
    return static_cast<Kernel>(static_cast<int>(tall ? Kernel::matmul_tall_1 : Kernel::matmul_1) + rows - 1);
}

struct Tiles {
    int8_t panels[isa_count][dtype_count][2][max_tile_rows + 1] = {};  // [tall][rows]; 0 where there is no such tile
    int8_t max_rows[isa_count] = {};

    constexpr void set(Kernel kernel, DType dtype, int isa, int width) {
        const bool tall = kernel >= Kernel::matmul_tall_1;
        const int rows = static_cast<int>(kernel) - static_cast<int>(tile_kernel(tall, 1)) + 1;
        panels[isa][static_cast<int>(dtype)][tall][rows] = static_cast<int8_t>(width);
        max_rows[isa] = max_rows[isa] < rows ? static_cast<int8_t>(rows) : max_rows[isa];
    }

    /** Those of the build. */
    constexpr void set_all() {
        enum { sse41 = HALYARD_ISA_SSE41, avx2 = HALYARD_ISA_AVX2, avx512 = HALYARD_ISA_AVX512 };
#define HALYARD_TILE(kernel, dtype, isa, width)                                                                        \
    static_assert(width <= max_tile_panels, #kernel " is wider than a tile may be");                                   \
    set(Kernel::kernel, DType::dtype, isa, width);
#include "kernels/tiles.inc"
#undef HALYARD_TILE
    }
};

const Tiles &tile_table();

}  // namespace halyard

#endif
