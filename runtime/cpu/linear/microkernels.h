// The tile kernels of GEMMs: which there are, and how many panels each is wide.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_MICROKERNELS_H
#define HALYARD_RUNTIME_CPU_LINEAR_MICROKERNELS_H

#include "core/kernel_call.h"
#include "layout/matmul.h"

namespace halyard {

/** Inputs from one prefetch of a matmul_prefetch4 kernel to the next. With as many tiles of rows they prefetch all of the
 *  weights that come next, a line each time. */
constexpr int prefetch4_interval = 4;

/** Tiles by instruction set, dtype of the weights, kind (prefetch4 or not) and rows. */
struct TileKernels {
    int8_t panels[isa_count][dtype_count][2][max_tile_rows + 1] = {};  // 0 where there is no such tile
    int8_t max_rows[isa_count] = {};

    /** Those of the build. */
    constexpr TileKernels() {
#define HALYARD_TILE(kernel, dtype, isa, width)                                                                        \
    static_assert(width <= max_tile_panels, #kernel " is wider than a tile may be");                                   \
    set(Kernel::kernel, DType::dtype, index_of(isa_named::isa), width);
#include "kernels/tiles.inc"
#undef HALYARD_TILE
    }

    static constexpr KernelOf<arguments::Matmul> kernel(bool prefetch4, int rows) {
        return {static_cast<Kernel>(static_cast<int>(prefetch4 ? Kernel::matmul_prefetch4_1 : Kernel::matmul_1) + rows -
                                    1)};
    }
    constexpr int width(halyard_isa isa, DType dtype, bool prefetch4, int rows) const {
        return panels[index_of(isa)][static_cast<int>(dtype)][prefetch4][rows];
    }
    constexpr void set(Kernel tile, DType dtype, int isa, int width) {
        const bool prefetch4 = tile >= Kernel::matmul_prefetch4_1;
        const int rows = static_cast<int>(tile) - static_cast<int>(kernel(prefetch4, 1).kernel) + 1;
        panels[isa][static_cast<int>(dtype)][prefetch4][rows] = static_cast<int8_t>(width);
        max_rows[isa] = max_rows[isa] < rows ? static_cast<int8_t>(rows) : max_rows[isa];
    }
};

const TileKernels &tile_kernels();

}  // namespace halyard

#endif
