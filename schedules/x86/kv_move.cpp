// Kernels that move keys and values, on x86.
//
// Reached, of a memcpy of the f32 rows (kernels alone, 64 positions of 128 features, rows and panels in the
// second-level cache, one thread of a Sapphire Rapids Xeon, 2026-11-21), AVX-512 / AVX2 / SSE4.1: packing keys f32 42 /
// 40 / 34 %, bf16 31 / 30 / 28 %, f16 30 / 31 / 13 %; packing values f32 91 / 93 / 87 %, bf16 93 / 64 / 42 %, f16 275 /
// 209 / 15 %; unpacking keys 27 to 41 %, values 38 to 200 %. A single position of 128 features takes 33 to 50 ns for
// the key, each of whose features lies in another line, and 8 to 27 for the value (90 and 77 where f16 is emulated).
#include "schedules/kv_move.h"

#include "runtime/layout/matmul.h"
#include "schedules/machine.h"
#include "schedules/space.h"

namespace halyard::schedules {

using namespace Halide;

namespace {

// A kernel either turns squares or copies rows: the parameter of the other way keeps its usual value.
const Space space("kv_move", {{"side", 8, {4, 8, 16}}, {"rows", 1, {1, 2, 4, 8}}},
                  [](const Choice &choice, const Circumstances &c) {
                      const bool transposed = c.kernel.count("transposed") > 0;
                      return transposed ? choice.at("rows") == 1 : choice.at("side") == 8;
                  });

// Squares are turned in registers; at the ends they overlap. 8 x 8 is best, also on AVX-512, where squares of 16 take a
// quarter longer. What has no room for a square, such as a single position, goes by vectors along the rows of `from`,
// each element of which is stored by itself.
void transpose(const KvMove &stages, int side) {
    const Var tile("tile"), block("block");
    Func to = stages.to, element = stages.element;
    to.specialize(stages.inner_extent >= side && stages.outer_extent >= side)
        .split(stages.outer, tile, stages.outer, side, TailStrategy::ShiftInwards)
        .split(stages.inner, block, stages.inner, side, TailStrategy::ShiftInwards)
        .reorder(stages.inner, stages.outer, block, tile, stages.panel)
        .vectorize(stages.inner)
        .unroll(stages.outer);
    to.split(stages.outer, block, stages.outer, side, TailStrategy::GuardWithIf)
        .reorder(stages.outer, block, stages.inner, stages.panel)
        .vectorize(stages.outer);
    element.compute_at(to, block)
        .store_in(MemoryType::Stack)
        .vectorize(stages.inner, side, TailStrategy::GuardWithIf)
        .unroll(stages.outer);
}

// Rows of a panel; the last ones overlap.
void copy(const KvMove &stages, int rows, const Target &target) {
    Func to = stages.to;
    if (rows > 1) {
        const Var tile("tile");
        to.specialize(stages.inner_extent == panel_width && stages.outer_extent >= rows)
            .split(stages.outer, tile, stages.outer, rows, TailStrategy::ShiftInwards)
            .vectorize(stages.inner, panel_width)
            .unroll(stages.outer);
    }
    to.specialize(stages.inner_extent == panel_width).vectorize(stages.inner, panel_width);
    to.vectorize(stages.inner, f32_lanes(target), TailStrategy::GuardWithIf);
}

}  // namespace

void kv_move(const KvMove &stages, const KvMoveParams &params, const Target &target) {
    if (stages.transposed) {
        transpose(stages, params.side);
    } else {
        copy(stages, params.rows, target);
    }
}

}  // namespace halyard::schedules
