// The tile kernels of GEMMs: which there are, and how many panels each is wide.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_MICROKERNELS_H
#define HALYARD_RUNTIME_CPU_LINEAR_MICROKERNELS_H

#include "core/kernel_call.h"
#include "layout/code_panels.h"
#include "layout/matmul.h"

namespace halyard {

/** Inputs from one prefetch of a matmul_prefetch4 kernel to the next. With as many tiles of rows they prefetch all of the
 *  weights that come next, a line each time. */
constexpr int prefetch4_interval = 4;

/** Inputs from one prefetch of a kernel to the next. */
constexpr int prefetch_interval(bool prefetch4, DType weights) {
    return prefetch4 ? prefetch4_interval : row_inputs(weights);
}

/** What the kernels read of x: f32, or pairs of bf16 (layout/matmul.h). */
enum class XForm { f32, pairs };

/** Rows of the tallest tile of AMX. It has one kernel for tiles of every height, any number of them and of panels. */
constexpr int amx_tile_rows = 16;
constexpr bool is_amx(halyard_isa isa, XForm x) {
    return isa == HALYARD_ISA_AMX && x == XForm::pairs;
}

/** Whether products of pairs have the bits of products of f32, but for denormals. */
constexpr bool keeps_bits(halyard_isa isa) {
    return isa != HALYARD_ISA_AMX && isa != HALYARD_ISA_NEON_BFDOT && isa != HALYARD_ISA_NEON_BFMMLA;
}

/** Tiles by instruction set, form of x, dtype of the weights, kind (prefetch4 or not) and rows. */
struct TileKernels {
    int8_t panels[isa_count][2][dtype_count][2][max_tile_rows + 1] = {};  // 0 where there is no such tile
    int8_t max_rows[isa_count][2] = {};
    int8_t code_panels[isa_count][4][max_tile_rows + 1] = {};  // of weights that are codes, by code_kind()

    /** Those of the build. */
    constexpr TileKernels() {
#define HALYARD_TILE(kernel, dtype, isa, width)                                                                        \
    static_assert(width <= max_tile_panels, #kernel " is wider than a tile may be");                                   \
    set(Kernel::kernel, DType::dtype, index_of(isa_named::isa), width);
#include "kernels/tiles.inc"
#undef HALYARD_TILE
    }

    static constexpr KernelOf<arguments::Matmul> kernel(bool prefetch4, int rows) {
        return {higher(prefetch4 ? Kernel::matmul_prefetch4_1 : Kernel::matmul_1, rows)};
    }
    static constexpr KernelOf<arguments::MatmulPairs> pairs_kernel(bool prefetch4, int rows) {
        return {higher(prefetch4 ? Kernel::matmul_pairs_prefetch4_1 : Kernel::matmul_pairs_1, rows)};
    }
    static constexpr KernelOf<arguments::MatmulCodes> code_kernel(const CodeLayout &codes, int rows) {
        constexpr Kernel of_one_row[] = {Kernel::matmul_codes4_1, Kernel::matmul_codes4_zeros_1,
                                         Kernel::matmul_codes8_1, Kernel::matmul_codes8_zeros_1};
        return {higher(of_one_row[code_kind(codes)], rows)};
    }
    /** Panels of a tile of codes and so many rows; 0 where there is none. */
    constexpr int code_width(halyard_isa isa, const CodeLayout &codes, int rows) const {
        return code_panels[index_of(isa)][code_kind(codes)][rows];
    }
    constexpr int width(halyard_isa isa, XForm x, DType weights, bool prefetch4, int rows) const {
        return panels[index_of(isa)][static_cast<int>(x)][static_cast<int>(weights)][prefetch4][rows];
    }
    /** Rows of the tallest tile; 0 where there are no tiles for such an x. */
    constexpr int tallest(halyard_isa isa, XForm x) const {
        return is_amx(isa, x) ? amx_tile_rows : max_rows[index_of(isa)][static_cast<int>(x)];
    }

    constexpr void set(Kernel tile, DType weights, int isa, int width) {
        // In the order of the table of kernels.
        constexpr Kernel firsts[] = {Kernel::matmul_1,        Kernel::matmul_prefetch4_1,
                                     Kernel::matmul_pairs_1,  Kernel::matmul_pairs_prefetch4_1,
                                     Kernel::matmul_codes4_1, Kernel::matmul_codes4_zeros_1,
                                     Kernel::matmul_codes8_1, Kernel::matmul_codes8_zeros_1};
        int kind = 7;
        while (tile < firsts[kind]) {
            kind--;
        }
        const int rows = static_cast<int>(tile) - static_cast<int>(firsts[kind]) + 1, x = kind / 2;
        if (kind >= 4) {
            code_panels[isa][kind - 4][rows] = static_cast<int8_t>(width);
            return;
        }
        panels[isa][x][static_cast<int>(weights)][kind % 2][rows] = static_cast<int8_t>(width);
        max_rows[isa][x] = max_rows[isa][x] < rows ? static_cast<int8_t>(rows) : max_rows[isa][x];
    }

private:
    /** Kernels leave out zeros that scales of such a form have none of when they are expanded (generators/expand_scales.cpp). */
    static constexpr int code_kind(const CodeLayout &codes) {
        const bool in_offset = codes.kind <= ScaleKind::zero && codes.scale_dtype != DType::f32;
        return (codes.bits == 8 ? 2 : 0) + (in_offset ? 0 : 1);
    }

    static constexpr Kernel higher(Kernel of_one_row, int rows) {
        return static_cast<Kernel>(static_cast<int>(of_one_row) + rows - 1);
    }
};

const TileKernels &tile_kernels();

}  // namespace halyard

#endif
