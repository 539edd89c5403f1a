// Row kernels on x86: the row is read from cache once per pass, everything between the passes stays in registers.
#include "schedules/row.h"

#include <algorithm>

#include "schedules/machine.h"
#include "schedules/search_space.h"

namespace halyard::schedules {
namespace {

using namespace Halide;

// Lanes of all reductions here: twice 32 with two values each, or 64.
constexpr int all_lanes = 64;

/** Vectors of lanes that a reduction of `lanes` accumulators keeps in registers. */
int accumulators(int lanes, int vector, int registers, int passes) {
    return passes > 0 ? lanes / vector / passes : std::min(lanes / vector, registers / 2);
}

/** Whether every row has as many registers for its lanes as it takes, and every pass a whole one. */
bool reduction_fits(const Choice &choice, const TargetInfo &target, int rows) {
    const int passes = choice.at("passes");
    const int kept = accumulators(all_lanes, target.lanes, target.registers, passes);
    const bool is_default = passes > 0 && kept == accumulators(all_lanes, target.lanes, target.registers, 0);
    return kept >= 1 && rows * kept <= target.registers && !is_default;
}

const WorthCompiling choices("row", [](const Choice &choice, const TargetInfo &target) {
    const int rows = choice.at("rows");
    return reduction_fits(choice, target, rows) && 2 * rows * choice.at("vectors") <= target.registers;
});

const WorthCompiling statistics_choices("statistics", [](const Choice &choice, const TargetInfo &target) {
    return reduction_fits(choice, target, 1);
});

// At each step of y's loop over `t` a stage is computed for as many rows as y takes in that step.
void per_step(Func stage, Func y, Var t) {
    stage.compute_at(y, t).unroll(t);
}

void reduction(RowReduction r, Func y, Var t, int passes, const Target &target) {
    const int vector = f32_lanes(target);
    // All lanes of all values are accumulators in registers through the whole pass: 8 of AVX2's 16 or 4 of AVX-512's
    // 32. With SSE's 4-wide vectors they would need all 16, so the lanes are halved into two passes there.
    const int values = r.lanes.outputs();
    const int in_registers =
        std::max(1, accumulators(r.lane_count * values, vector, vector_registers(target), passes) / values) * vector;

    Var group("group");
    per_step(r.lanes, y, t);
    r.lanes.vectorize(r.lane, vector).unroll(r.lane);
    r.lanes.update(0)
        .split(r.lane, group, r.lane, in_registers)
        .reorder(r.lane, t, r.blocks.x, group)
        .vectorize(r.lane, vector)
        .unroll(r.lane)
        .unroll(t)
        .unroll(group);
    // Without registers for masks, the elements of a masked vector are read one by one: a loop masks one vector at most. Unrolled
    // for all lanes it would be half of a kernel's code.
    Stage rest = r.lanes.update(1);
    rest.reorder(r.lane, t, r.rest.x).vectorize(r.lane, vector).unroll(t);
    if (r.tail.defined() || target.has_feature(Target::AVX512_Skylake)) {
        rest.unroll(r.lane);
    } else {
        mask_partial_vectors(r, vector);
    }
    if (r.tail.defined()) {
        r.tail.compute_at(r.lanes, r.rest.x).vectorize(r.lane, vector);
        r.tail.update(0).vectorize(r.tail_features.x, vector, TailStrategy::GuardWithIf);
    }

    int level_lanes = r.lane_count;
    for (Func level : r.tree) {
        // Whole registers, also where one is rotated.
        level_lanes = std::max(level_lanes / 2, r.vector);
        per_step(level, y, t);
        level.vectorize(r.lane, std::min(vector, level_lanes)).unroll(r.lane);
    }
    per_step(r.result, y, t);
}

}  // namespace

void row(const Row &stages, const RowParams &params, const Target &target, const Pipeline &) {
    Func y = stages.y;
    const Var t = stages.t;
    // Elements of an iteration of the last pass over a whole row, whose width is a multiple of 64.
    const int chunk = std::min<int>(64, f32_lanes(target) * (params.vectors >= 4 ? 4 : 2));
    if (stages.pairs.defined()) {
        Func pairs = stages.pairs;
        pairs.compute_at(y, stages.d).vectorize(stages.d).unroll(t).store_in(MemoryType::Register);
    }
    for (const RowReduction &r : stages.reductions) {
        reduction(r, y, t, params.passes, target);
    }
    for (Func scalar : stages.scalars) {
        per_step(scalar, y, t);
    }

    // Model widths are multiples of the lane count. Their branch has no masks to compute and keeps the accumulators out
    // of memory, which masked updates do not: a 64-wide row takes half the time.
    const Expr width = y.output_buffers()[0].dim(0).extent();
    Expr whole = width % 64 == 0;
    for (const RowReduction &r : stages.reductions) {
        whole = whole && r.width % (r.lane_count * r.features_per_lane) == 0;
    }
    // Pairs of whole rows: a vector of words stays in registers from its loads to its one store.
    const Var pair("pair"), half("half");
    const auto last_pass = [&](Stage pass) {
        if (!stages.pairs.defined()) {
            pass.vectorize(stages.d, f32_lanes(target) * params.vectors, TailStrategy::GuardWithIf);
            return;
        }
        pass.split(stages.d, stages.d, pair, chunk, TailStrategy::RoundUp)
            .split(pair, pair, half, 2)
            .reorder(half, pair, stages.d)
            .unroll(half)
            .vectorize(pair);
    };
    // Several rows at a time hide the latency of the sums, and a weight that is loaded and widened serves all of them.
    Stage last = last_stage(stages);
    if (params.rows > 1) {
        const Var row("row");
        Stage rows = last.specialize(whole && y.output_buffers()[0].dim(1).extent() % params.rows == 0);
        last_pass(rows);
        rows.split(t, t, row, params.rows, TailStrategy::RoundUp).reorder(row, stages.d, t).unroll(row);
    }
    last_pass(last.specialize(whole));
    if (stages.pairs.defined()) {
        last_pass(last.specialize(width % 64 == 0));  // with sums over a part of the row
    }
    // Other rows: the elements after the last whole iteration are written one by one, so that iterations are short.
    last.vectorize(stages.d, f32_lanes(target) * std::min<int>(2, params.vectors), TailStrategy::GuardWithIf);
}

void row_statistics(const Row &stages, const RowParams &params, const Target &target) {
    Func y = stages.y;
    y.unroll(stages.d);
    for (const RowReduction &r : stages.reductions) {
        reduction(r, y, stages.t, params.passes, target);
    }
    for (Func scalar : stages.scalars) {
        scalar.compute_at(y, stages.t);
    }
    y.specialize(stages.reductions.back().width % 64 == 0);
}

}  // namespace halyard::schedules
