// The rope family: rotary position embedding.
#ifndef HALYARD_SCHEDULES_ROPE_H
#define HALYARD_SCHEDULES_ROPE_H

#include "Halide.h"

namespace halyard::schedules {

/** y(pair, part, head): both parts of a pair from both, in place if need be. */
struct Rope {
    Halide::Func loaded;  // loaded(pair, part, head), what is read of x
    Halide::Func y;
    Halide::Var pair, part, head;
    Halide::Expr pairs;
};

void rope(const Rope &stages, const Halide::Target &target);

}  // namespace halyard::schedules

#endif
