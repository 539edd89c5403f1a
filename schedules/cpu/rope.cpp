// Rotary position embedding on processors.
#include "schedules/rope.h"

#include "schedules/machine.h"
#include "schedules/search_space.h"

namespace halyard::schedules {

using namespace Halide;

namespace {

// Both parts of each pair are in registers, before and after; cosines and sines serve all heads beside each other.
const WorthCompiling choices("rope", [](const Choice &choice, const TargetInfo &target) {
    return choice.at("vectors") * (2 * choice.at("heads") + 2) <= target.registers;
});

}  // namespace

void rope(const Rope &stages, const RopeParams &params, const Target &target) {
    const int vector = f32_lanes(target) * params.vectors;
    const Var lane("lane"), beside("beside");
    Func y = stages.y, loaded = stages.loaded;
    const auto by_vectors = [&](Stage stage, TailStrategy tail) {
        stage.split(stages.pair, stages.pair, lane, vector, tail)
            .reorder(lane, stages.part, stages.pair, stages.head)
            .vectorize(lane)
            .unroll(stages.part);
    };
    if (params.heads > 1) {
        y.specialize(stages.pairs % vector == 0 && stages.heads % params.heads == 0)
            .split(stages.pair, stages.pair, lane, vector, TailStrategy::RoundUp)
            .split(stages.head, stages.head, beside, params.heads, TailStrategy::RoundUp)
            .reorder(lane, stages.part, beside, stages.pair, stages.head)
            .vectorize(lane)
            .unroll(stages.part)
            .unroll(beside);
        loaded.unroll(stages.head);
    }
    by_vectors(y.specialize(stages.pairs % vector == 0), TailStrategy::RoundUp);
    by_vectors(y, TailStrategy::GuardWithIf);
    // Both parts are in registers before either is written: y may be x.
    loaded.compute_at(y, stages.pair)
        .store_in(MemoryType::Stack)
        .vectorize(stages.pair, vector, TailStrategy::GuardWithIf)
        .unroll(stages.part);
}

}  // namespace halyard::schedules
