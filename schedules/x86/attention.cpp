// Attention kernels on x86.
#include "schedules/attention.h"

#include <algorithm>

#include "schedules/machine.h"

namespace halyard::schedules {

using namespace Halide;

namespace {

// All lanes are accumulators in registers. (As many as SSE has: they take two passes there.)
void reduction(RowReduction r, Func y, Var row, const Target &target) {
    const int vector = f32_lanes(target);
    const int in_registers = std::min(r.lane_count, vector * vector_registers(target) / 2);
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
    Func maximum = stages.maximum, weights = stages.weights, sum = stages.sum;
    reduction(stages.largest, maximum, stages.row, target);
    maximum.specialize(!stages.masked);

    weights.compute_root();
    weights.vectorize(stages.position, f32_lanes(target) * params.vectors, TailStrategy::RoundUp)
        .specialize(!stages.masked);

    reduction(stages.total, sum, stages.row, target);
}

void attention_rows(Func y, Var d, const AttentionParams &params, const Target &target) {
    y.compute_root().vectorize(d, f32_lanes(target) * params.vectors, TailStrategy::GuardWithIf);
}

void attention_statistics(Func y, Var row, Var part, const Target &target) {
    y.compute_root().vectorize(row, f32_lanes(target), TailStrategy::RoundUp).unroll(part);
}

}  // namespace halyard::schedules
