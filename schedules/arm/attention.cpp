// Attention kernels on ARM. No processor was at hand: what is said of speed is by the model of docs/arm.md.
#include "schedules/attention.h"

#include "schedules/arm/reduction.h"
#include "schedules/search_space.h"

namespace halyard::schedules {

using namespace Halide;

namespace {

const WorthCompiling choices("attention", [](const Choice &choice, const TargetInfo &target) {
    return 2 * choice.at("vectors") <= target.registers;
});

}  // namespace

void attention_softmax(const AttentionSoftmax &stages, const AttentionParams &params, const Target &) {
    Func limits = stages.limits, maximum = stages.maximum, weights = stages.weights, sum = stages.sum;
    arm::reduction(stages.row_max, limits, stages.row);
    limits.compute_root().unroll(stages.part).specialize(!stages.masked);
    maximum.compute_root();

    weights.compute_root().vectorize(stages.position, arm::f32_lanes, TailStrategy::RoundUp);
    if (params.vectors > 1) {
        weights.unroll(stages.position, params.vectors, TailStrategy::RoundUp);
    }
    weights.specialize(!stages.masked);

    arm::reduction(stages.total, sum, stages.row);
}

void attention_rows(Func y, Var d, const AttentionParams &params, const Target &) {
    y.compute_root();
    arm::by_vectors(y, y, d, params.vectors);
}

void attention_statistics(Func y, Var row, Var part, const Target &) {
    y.compute_root().vectorize(row, arm::f32_lanes, TailStrategy::RoundUp).unroll(part);
}

}  // namespace halyard::schedules
