// The rope family: rotary position embedding.
#ifndef HALYARD_SCHEDULES_ROPE_H
#define HALYARD_SCHEDULES_ROPE_H

#include "Halide.h"

namespace halyard::schedules {

/** Parameters, set per kernel and instruction set by schedules/tuned. */
struct RopeParams {
    Halide::GeneratorParam<int> vectors{"vectors", 1};  // of pairs, per iteration
    Halide::GeneratorParam<int> heads{"heads", 1};      // turned side by side, where the number of heads is a multiple
};

/** y(pair, part, head): both parts of a pair from both, in place if need be. */
struct Rope {
    Halide::Func loaded;  // loaded(pair, part, head), what is read of x
    Halide::Func y;
    Halide::Var pair, part, head;
    Halide::Expr pairs, heads;
};

void rope(const Rope &stages, const RopeParams &params, const Halide::Target &target);

}  // namespace halyard::schedules

#endif
