// Heads of tokens on GPUs, where each element of a head is computed with those of its place alone.
#ifndef HALYARD_SCHEDULES_GPU_HEADS_H
#define HALYARD_SCHEDULES_GPU_HEADS_H

#include <vector>

#include "Halide.h"

namespace halyard::schedules::gpu {

struct Heads {
    Halide::Func y;                    // y(d, head, token, batch)
    Halide::Func results;              // what y is, all computed before y is written: y may be an input
    std::vector<Halide::Func> inputs;  // inputs(d, head, token, batch): what is read of the inputs
    std::vector<Halide::Func> table;   // table(pair, token, batch): what the heads of a token share
    Halide::Var d, head, token, batch, pair;
};

void heads(const Heads &stages, bool packed, const Halide::Target &target);

}  // namespace halyard::schedules::gpu

#endif
