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

/** What the kernels read of x: f32, pairs of bf16, or 8 bits with scales (layout/matmul.h). */
enum class XForm { f32, pairs, int8 };

/** AMX has one kernel for tiles of every height, any number of them and of panels. */
constexpr bool is_amx(halyard_isa isa, XForm x) {
    return isa == HALYARD_ISA_AMX && x == XForm::pairs;
}

/** Inputs of rows of form `x` by weights of `weights` that are summed by themselves before their sum is added to that of the inputs before.
 *  Zeros beside them change nothing, a beginning among them does. */
constexpr int inputs_together(halyard_isa isa, XForm x, DType weights) {
    return is_amx(isa, x) ? amx_step_inputs : row_inputs(weights);
}

/** Whether products of pairs have the bits of products of f32, but for denormals. */
constexpr bool keeps_bits(halyard_isa isa) {
    return isa != HALYARD_ISA_AMX && isa != HALYARD_ISA_NEON_BFDOT && isa != HALYARD_ISA_NEON_BFMMLA;
}

/** Kinds of tile kernels: what they read of x and of the weights, how often they prefetch, and whether near, which is into the first-level
 *  cache; those for quantized weights (generators/matmul_codes.cpp) by the bits of what they read. */
enum class TileKind {
    f32,
    f32_prefetch4,
    f32_near,
    pairs,
    pairs_prefetch4,
    pairs_near,
    codes4,
    codes8,
    codes32,
    pairs_codes4,
    pairs_codes8,
    int8_codes4,
    int8_codes8,
    int8_two_levels_codes4,
    int8_two_levels_codes8,
    int8_two_levels_signed_codes8
};
constexpr int tile_kinds = 16;

/** For weights that are no codes; for rows in 8 bits, of which codes alone make products, the kind whose tiles are as tall. */
constexpr TileKind tile_kind(XForm x, bool prefetch4) {
    switch (x) {
    case XForm::f32:
        return prefetch4 ? TileKind::f32_prefetch4 : TileKind::f32;
    case XForm::pairs:
        return prefetch4 ? TileKind::pairs_prefetch4 : TileKind::pairs;
    case XForm::int8:
        break;
    }
    return TileKind::int8_codes4;
}
/** The kind that prefetches once in four inputs, or near; `kind` itself where there is none. */
constexpr TileKind prefetch4_kind(TileKind kind) {
    return kind == TileKind::f32 ? TileKind::f32_prefetch4 : kind == TileKind::pairs ? TileKind::pairs_prefetch4 : kind;
}
constexpr TileKind near_kind(TileKind kind) {
    return kind == TileKind::f32 ? TileKind::f32_near : kind == TileKind::pairs ? TileKind::pairs_near : kind;
}
constexpr bool is_prefetch4(TileKind kind) {
    return kind == TileKind::f32_prefetch4 || kind == TileKind::pairs_prefetch4;
}
constexpr bool is_near(TileKind kind) {
    return kind == TileKind::f32_near || kind == TileKind::pairs_near;
}

/** What kernels of codes read of x. */
constexpr XForm x_form(TileKind codes) {
    return codes == TileKind::pairs_codes4 || codes == TileKind::pairs_codes8 ? XForm::pairs : XForm::f32;
}

/** For codes as they are. */
constexpr TileKind tile_kind_of_codes(XForm x, int bits) {
    switch (x) {
    case XForm::f32:
        break;
    case XForm::pairs:
        return bits == 4 ? TileKind::pairs_codes4 : TileKind::pairs_codes8;
    case XForm::int8:
        return bits == 4 ? TileKind::int8_codes4 : TileKind::int8_codes8;
    }
    return bits == 4 ? TileKind::codes4 : TileKind::codes8;
}
/** For one row that takes scales as they are stored; where they have two levels, of x in 8 bits alone. */
constexpr TileKind tile_kind_of_stored_scales(XForm x, const CodeLayout &layout) {
    switch (layout.kind) {
    case ScaleKind::two_levels:
        return layout.bits == 4 ? TileKind::int8_two_levels_codes4 : TileKind::int8_two_levels_codes8;
    case ScaleKind::two_levels_signed:
        return TileKind::int8_two_levels_signed_codes8;
    default:
        return tile_kind_of_codes(x, layout.bits);
    }
}

/** The kernels of each kind, of 1 to max_tile_rows rows; of x in 8 bits to max_int8_tile_rows, and with scales of two levels of one. */
constexpr Kernel tile_kernel_table[tile_kinds][max_tile_rows] = {
#define HALYARD_TILES(kind)                                                                                            \
    {                                                                                                                  \
        Kernel::kind##_1, Kernel::kind##_2, Kernel::kind##_3, Kernel::kind##_4, Kernel::kind##_5, Kernel::kind##_6,    \
            Kernel::kind##_7, Kernel::kind##_8                                                                         \
    }
#define HALYARD_INT8_TILES(kind)                                                                                       \
    { Kernel::kind##_1, Kernel::kind##_2, Kernel::kind##_3, Kernel::kind##_4 }
    HALYARD_TILES(matmul),
    HALYARD_TILES(matmul_prefetch4),
    {Kernel::matmul_near_1},
    HALYARD_TILES(matmul_pairs),
    HALYARD_TILES(matmul_pairs_prefetch4),
    {Kernel::matmul_pairs_near_1},
    HALYARD_TILES(matmul_codes4),
    HALYARD_TILES(matmul_codes8),
    HALYARD_TILES(matmul_codes32),
    HALYARD_TILES(matmul_pairs_codes4),
    HALYARD_TILES(matmul_pairs_codes8),
    HALYARD_INT8_TILES(matmul_int8_codes4),
    HALYARD_INT8_TILES(matmul_int8_codes8),
    {Kernel::matmul_int8_two_levels_codes4_1},
    {Kernel::matmul_int8_two_levels_codes8_1},
    {Kernel::matmul_int8_two_levels_signed_codes8_1},
#undef HALYARD_INT8_TILES
#undef HALYARD_TILES
};

/** How many panels tiles are wide, by instruction set, kind, dtype of the weights and rows. */
struct TileKernels {
    int8_t panels[isa_count][tile_kinds][dtype_count][max_tile_rows + 1] = {};  // 0 where there is no such tile
    int8_t max_rows[isa_count][tile_kinds] = {};

    /** The tiles of the build. */
    constexpr TileKernels() {
#define HALYARD_TILE(kernel, dtype, isa, width)                                                                        \
    static_assert(width <= max_tile_panels, #kernel " is wider than a tile may be");                                   \
    set(Kernel::kernel, DType::dtype, index_of(isa_named::isa), width);
#include "kernels/tiles.inc"
#undef HALYARD_TILE
    }

    static constexpr Kernel of(TileKind kind, int rows) {
        return tile_kernel_table[static_cast<int>(kind)][rows - 1];
    }
    static constexpr KernelOf<arguments::Matmul> kernel(TileKind kind, int rows) {
        return {of(kind, rows)};
    }
    static constexpr KernelOf<arguments::MatmulPairs> pairs_kernel(TileKind kind, int rows) {
        return {of(kind, rows)};
    }
    static constexpr KernelOf<arguments::MatmulCodes> code_kernel(TileKind kind, int rows) {
        return {of(kind, rows)};
    }
    static constexpr KernelOf<arguments::MatmulInt8> int8_kernel(TileKind kind, int rows) {
        return {of(kind, rows)};
    }
    constexpr int width(halyard_isa isa, TileKind kind, DType weights, int rows) const {
        return panels[index_of(isa)][static_cast<int>(kind)][static_cast<int>(weights)][rows];
    }
    /** Rows of the tallest tile; 0 where there are no tiles for such an x. */
    constexpr int tallest(halyard_isa isa, XForm x) const {
        const auto rows = [&](bool prefetch4) {
            return static_cast<int>(max_rows[index_of(isa)][static_cast<int>(tile_kind(x, prefetch4))]);
        };
        return is_amx(isa, x) ? amx_tile_rows : rows(false) > rows(true) ? rows(false) : rows(true);
    }

    constexpr void set(Kernel tile, DType weights, int isa, int width) {
        for (int kind = 0; kind < tile_kinds; kind++) {
            for (int rows = 1; rows <= max_tile_rows; rows++) {
                if (tile_kernel_table[kind][rows - 1] == tile) {
                    int8_t &tallest = max_rows[isa][kind];
                    panels[isa][kind][static_cast<int>(weights)][rows] = static_cast<int8_t>(width);
                    tallest = tallest < rows ? static_cast<int8_t>(rows) : tallest;
                }
            }
        }
    }
};

const TileKernels &tile_kernels();

}  // namespace halyard

#endif
