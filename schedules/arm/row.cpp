// Row kernels on ARM: the row is read from cache once per pass, everything between the passes stays in registers. No
// processor was at hand: what is said of speed is by the model of docs/arm.md.
#include "schedules/row.h"

#include "schedules/arm/reduction.h"
#include "schedules/search_space.h"

namespace halyard::schedules {
namespace {

using namespace Halide;

// Beside one row's accumulators there is room for what comes next, not for those of another.
const WorthCompiling choices("row", [](const Choice &choice, const TargetInfo &) { return choice.at("rows") == 1; });

// At each step of y's loop over `t` a stage is computed for as many rows as y takes in that step.
void per_step(Func stage, Func y, Var t) {
    stage.compute_at(y, t).unroll(t);
}

}  // namespace

void row(const Row &stages, const RowParams &params, const Target &, const Pipeline &pipeline) {
    Func y = stages.y;
    const Var t = stages.t;
    for (const RowReduction &r : stages.reductions) {
        arm::reduction(r, y, t);
    }
    for (Func scalar : stages.scalars) {
        per_step(scalar, y, t);
    }

    // Model widths are multiples of the lane count. Their branch has no masks to compute and keeps the accumulators out
    // of memory, which masked updates do not: a 64-wide row takes half the time.
    const Expr width = y.output_buffers()[0].dim(0).extent();
    Expr whole = width % 64 == 0;
    for (const RowReduction &r : stages.reductions) {
        whole = whole && r.width % r.lane_count == 0;
    }
    // Several rows at a time hide the latency of the sums, and a weight that is loaded and widened serves all of them.
    Stage last = last_stage(stages);
    if (params.rows > 1) {
        const Var row("row");
        Stage several = last.specialize(whole && y.output_buffers()[0].dim(1).extent() % params.rows == 0);
        arm::by_vectors(y, several, stages.d, params.vectors);
        several.split(t, t, row, params.rows, TailStrategy::RoundUp).reorder(row, stages.d, t).unroll(row);
    }
    arm::by_vectors(y, last.specialize(whole), stages.d, params.vectors);
    if (stages.sums > 0) {
        arm::by_vectors(y, last, stages.d, params.vectors);  // sums take every element once
    } else {
        arm::by_overlapping_vectors(y, stages.d, params.vectors, pipeline);
    }
}

void row_statistics(const Row &stages, const RowParams &, const Target &) {
    Func y = stages.y;
    y.unroll(stages.d);
    for (const RowReduction &r : stages.reductions) {
        arm::reduction(r, y, stages.t);
    }
    for (Func scalar : stages.scalars) {
        scalar.compute_at(y, stages.t);
    }
    y.specialize(stages.reductions.back().width % 64 == 0);
}

}  // namespace halyard::schedules
