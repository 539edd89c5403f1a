// Kernels that move keys and values, on ARM.
#include "schedules/kv_move.h"

#include "runtime/layout/matmul.h"
#include "schedules/arm/vectors.h"
#include "schedules/space.h"

namespace halyard::schedules {

using namespace Halide;

namespace {

// A kernel either turns squares or copies rows: the parameter of the other way keeps its usual value.
const Space space("kv_move", {{"side", 8, {4, 8}}, {"rows", 1, {1, 2, 4, 8}}},
                  [](const Choice &choice, const Circumstances &c) {
                      const bool transposed = c.kernel.count("transposed") > 0;
                      return transposed ? choice.at("rows") == 1 : choice.at("side") == 8;
                  });

// A column of `from` becomes a vector of `to`, lane by lane (`ld1`), several columns at a time so that the lines of
// `from` are read once. To turn squares in registers takes fewer loads, but LLVM makes them by way of the stack. What
// has no room for that, such as a single position, goes by vectors along the rows of `from`, each element of which is
// stored by itself.
void transpose(const KvMove &stages, int side) {
    const Var tile("tile"), block("block");
    Func to = stages.to;
    to.specialize(stages.inner_extent >= side && stages.outer_extent >= side)
        .split(stages.outer, tile, stages.outer, side, TailStrategy::ShiftInwards)
        .split(stages.inner, block, stages.inner, side, TailStrategy::ShiftInwards)
        .reorder(stages.inner, stages.outer, block, tile, stages.panel)
        .vectorize(stages.inner)
        .unroll(stages.outer);
    to.split(stages.outer, block, stages.outer, side, TailStrategy::GuardWithIf)
        .reorder(stages.outer, block, stages.inner, stages.panel)
        .vectorize(stages.outer);
}

// Rows of a panel; the last ones overlap.
void copy(const KvMove &stages, int rows) {
    Func to = stages.to;
    if (rows > 1) {
        const Var tile("tile");
        to.specialize(stages.inner_extent == panel_width && stages.outer_extent >= rows)
            .split(stages.outer, tile, stages.outer, rows, TailStrategy::ShiftInwards)
            .vectorize(stages.inner, panel_width)
            .unroll(stages.outer);
    }
    to.specialize(stages.inner_extent == panel_width).vectorize(stages.inner, panel_width);
    to.vectorize(stages.inner, arm::f32_lanes, TailStrategy::GuardWithIf);
}

}  // namespace

void kv_move(const KvMove &stages, const KvMoveParams &params, const Target &) {
    if (stages.transposed) {
        transpose(stages, params.side);
    } else {
        copy(stages, params.rows);
    }
}

}  // namespace halyard::schedules
