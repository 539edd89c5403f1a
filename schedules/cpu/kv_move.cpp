// Kernels that move keys and values, on processors.
#include "schedules/kv_move.h"

#include "runtime/matmul_layout.h"
#include "schedules/machine.h"
#include "schedules/search_space.h"

namespace halyard::schedules {

using namespace Halide;

namespace {

// A kernel either turns squares or copies rows: the parameter of the other way keeps its default.
const WorthCompiling choices("kv_move", [](const Choice &choice, const TargetInfo &target) {
    const bool transposed = target.kernel.count("transposed") > 0;
    return transposed ? choice.at("rows") == 1 : choice.at("side") == 8;
});

// Squares; at the ends they overlap. x86 turns them in registers, and 8 x 8 is best there, also on AVX-512, where squares of
// 16 take a quarter longer. On ARM a column of `from` becomes a vector of `to` lane by lane (`ld1`), several columns at a time
// so that the lines of `from` are read once: LLVM turns squares by way of the stack. What has no room for a square, such as a
// single position, goes by vectors along the rows of `from`, each element of which is stored by itself.
void transpose(const KvMove &stages, int side, const Target &target) {
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
    if (target.arch == Target::X86) {
        element.compute_at(to, block)
            .store_in(MemoryType::Stack)
            .vectorize(stages.inner, side, TailStrategy::GuardWithIf)
            .unroll(stages.outer);
    }
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
        transpose(stages, params.side, target);
    } else {
        copy(stages, params.rows, target);
    }
}

}  // namespace halyard::schedules
