// The kv_move family: keys and values into the panels of the cache, and out of them.
#ifndef HALYARD_SCHEDULES_KV_MOVE_H
#define HALYARD_SCHEDULES_KV_MOVE_H

#include "Halide.h"

namespace halyard::schedules {

/** Parameters, set per kernel and instruction set by schedules/tuned. */
struct KvMoveParams {
    Halide::GeneratorParam<int> side{"side", 8};  // of the squares that are turned in registers
    Halide::GeneratorParam<int> rows{"rows", 1};  // of a panel, copied at a time
};

struct KvMove {
    Halide::Func element;  // element(inner, outer, panel), converted
    Halide::Func to;       // to(inner, outer, panel), the same, or with inner and outer exchanged
    Halide::Var inner, outer, panel;
    Halide::Expr inner_extent, outer_extent;  // of `to`
    bool transposed;
};

void kv_move(const KvMove &stages, const KvMoveParams &params, const Halide::Target &target);

}  // namespace halyard::schedules

#endif
