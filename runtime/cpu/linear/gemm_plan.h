// What is decided about a GEMM before it runs: tiles, panels that go together, the order of the inputs, threads.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_GEMM_PLAN_H
#define HALYARD_RUNTIME_CPU_LINEAR_GEMM_PLAN_H

#include <algorithm>

#include "core/context.h"
#include "cpu/linear/microkernels.h"

namespace halyard {

/** Threads that work of `bytes` bytes is worth. */
int threads_for(const halyard_context &context, int64_t bytes);

/** How many of `rows` rows go through the GEMMs at a time, at most max_block_rows: half of the second-level cache holds them
 *  for one k block, if no parameter says otherwise. */
constexpr int max_block_rows = 256;
int64_t block_rows(int64_t rows);

/** Panels whose sums a thread holds at a time: of one tile, or of two where gate and up would be torn apart. */
constexpr int max_group_panels = 2 * max_tile_panels;
constexpr int max_group_columns = max_group_panels * panel_width;

/** From one row of sums to the next: a cache line more than they take, so that rows do not share the sets of the cache. */
constexpr int64_t sums_pitch(int group_panels) {
    return (group_panels + 1) * panel_width;
}

/** Tiles of equal height that cover the rows of a block. */
struct Tiling {
    int tile_rows;
    int64_t tiles;

    Tiling(halyard_isa isa, XForm x, int64_t rows);
    int64_t rows() const { return tile_rows * tiles; }
    /** A bound on rows() for every call of at most `rows` rows. */
    static int64_t max_rows(int64_t rows) { return rows + std::max(max_tile_rows, amx_tile_rows); }
};

/** What a plan must know of a right operand (cpu/linear/right_operands.h). */
struct RightShape {
    int64_t panels, inputs;
    bool gated;           // panels of gate and up take turns
    int64_t panel_bytes;  // in memory
    XForm x;              // what its kernels read of the left operand
    TileKind kind;        // its kernels, or those that prefetch otherwise
    bool read_in_place;   // they read it where it lies in memory
    DType dtype;          // theirs
};

/** One GEMM, decided. The sums over the inputs are made in k blocks of `depth` inputs each, and added in the order of the
 *  inputs: ((block 0) + block 1) + ..., whatever the tiles and threads. */
struct GemmPlan {
    halyard_isa isa;
    Tiling tiling;
    int64_t rows, panels, inputs;
    int64_t depth;                // inputs of a kernel call
    TileKind kind;                // of the kernels
    int tile_panels;              // of a kernel call
    int group_panels;             // whose sums are held at a time
    int64_t groups, task_groups;  // of all, and of those a thread takes at a time
    int threads;

    /** Floats from one row of a worker's sums to the next. */
    int64_t sums_pitch() const { return halyard::sums_pitch(group_panels); }
};

/** `x_bytes`: of the left operand in blocks. `threads`: the most there may be. */
GemmPlan plan_gemm(halyard_isa isa, const RightShape &right, const Tiling &tiling, int64_t rows, int64_t x_bytes,
                   int threads);

}  // namespace halyard

#endif
