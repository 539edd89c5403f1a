// Rotary position embedding on x86.
//
// Reached, of a copy that moves the same bytes (kernels alone, 32 heads of 128 features in the first-level cache, one
// thread of a Sapphire Rapids Xeon, 2026-11-21), AVX-512 / AVX2 / SSE4.1: halves f32 48 / 43 / 28 %, f16 23 / 20 / 1 %,
// bf16 13 / 9 / 5 %; interleaved f32 38 / 23 / 22 %, f16 13 / 11 / 1 %, bf16 12 / 13 / 6 %. A head of 128 takes 7 ns in
// f32 on AVX-512, and no kernel but the one that emulates conversions of f16 more than 35.
#include "schedules/rope.h"

#include "schedules/machine.h"
#include "schedules/space.h"

namespace halyard::schedules {

using namespace Halide;

namespace {

// Both parts of each pair are in registers, before and after; cosines and sines serve all heads beside each other.
const Space space("rope", {{"vectors", 1, {1, 2, 4}}, {"heads", 1, {1, 2, 4}}},
                  [](const Choice &choice, const Circumstances &c) {
                      return choice.at("vectors") * (2 * choice.at("heads") + 2) <= c.registers;
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
