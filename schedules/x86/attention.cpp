// Attention kernels on x86.
#include "schedules/attention.h"

#include <algorithm>

#include "schedules/machine.h"
#include "schedules/search_space.h"

namespace halyard::schedules {

using namespace Halide;

namespace {

// Lanes of all reductions here. Rows of the softmax are whole blocks of them, and of what a pass computes per iteration.
constexpr int all_lanes = 64;

// All lanes are accumulators in registers. (As many as SSE has: they take two passes there.)
int accumulators(int vector, int registers, int passes) {
    return passes > 0 ? all_lanes / vector / passes : std::min(all_lanes / vector, registers / 2);
}

const WorthCompiling choices("attention", [](const Choice &choice, const TargetInfo &target) {
    const int vectors = choice.at("vectors"), passes = choice.at("passes");
    const int kept = accumulators(target.lanes, target.registers, passes);
    if (target.generator != "attention_softmax" && passes != 0) {
        return false;  // there is no reduction
    }
    // Beside the accumulators a pass holds what comes next and its bounds.
    const bool is_default = passes > 0 && kept == accumulators(target.lanes, target.registers, 0);
    return 2 * vectors <= target.registers && kept < target.registers && !is_default;
});

void reduction(RowReduction r, Func y, Var row, int passes, const Target &target) {
    const int vector = f32_lanes(target);
    const int in_registers = accumulators(vector, vector_registers(target), passes) * vector;
    const Var group("group");
    r.lanes.compute_at(y, row).vectorize(r.lane, vector).unroll(r.lane);
    r.lanes.update(0)
        .split(r.lane, group, r.lane, in_registers)
        .reorder(r.lane, r.blocks.x, group)
        .vectorize(r.lane, vector)
        .unroll(r.lane)
        .unroll(group);
    r.lanes.update(1).vectorize(r.lane, vector).unroll(r.lane);
    int level_lanes = r.lane_count;
    for (Func level : r.tree) {
        level_lanes /= 2;
        level.compute_at(y, row).vectorize(r.lane, std::min(vector, level_lanes)).unroll(r.lane);
    }
    r.result.compute_at(y, row);
}

}  // namespace

void attention_softmax(const AttentionSoftmax &stages, const AttentionParams &params, const Target &target) {
    Func limits = stages.limits, maximum = stages.maximum, weights = stages.weights, sum = stages.sum;
    reduction(stages.row_max, limits, stages.row, params.passes, target);
    limits.compute_root().unroll(stages.part).specialize(!stages.masked);
    maximum.compute_root();

    weights.compute_root();
    weights.vectorize(stages.position, f32_lanes(target) * params.vectors, TailStrategy::RoundUp)
        .specialize(!stages.masked);

    reduction(stages.total, sum, stages.row, params.passes, target);
}

void attention_rows(Func y, Var d, const AttentionParams &params, const Target &target) {
    y.compute_root().vectorize(d, f32_lanes(target) * params.vectors, TailStrategy::GuardWithIf);
}

void attention_statistics(Func y, Var row, Var part, const Target &target) {
    y.compute_root().vectorize(row, f32_lanes(target), TailStrategy::RoundUp).unroll(part);
}

}  // namespace halyard::schedules
