// Rotary position embedding on ARM. No processor was at hand.
#include "schedules/rope.h"

#include "schedules/arm/vectors.h"

namespace halyard::schedules {

using namespace Halide;

void rope(const Rope &stages, const RopeParams &, const Target &) {
    const Var lane("lane");
    Func y = stages.y, loaded = stages.loaded;
    const auto by_vectors = [&](Stage stage, TailStrategy tail) {
        stage.split(stages.pair, stages.pair, lane, arm::f32_lanes, tail)
            .reorder(lane, stages.part, stages.pair, stages.head)
            .vectorize(lane)
            .unroll(stages.part);
    };
    by_vectors(y.specialize(stages.pairs % arm::f32_lanes == 0), TailStrategy::RoundUp);
    by_vectors(y, TailStrategy::GuardWithIf);
    // Both parts are in registers before either is written: y may be x.
    loaded.compute_at(y, stages.pair)
        .store_in(MemoryType::Stack)
        .vectorize(stages.pair, arm::f32_lanes, TailStrategy::GuardWithIf)
        .unroll(stages.part);
}

}  // namespace halyard::schedules
