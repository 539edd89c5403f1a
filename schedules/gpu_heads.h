// Heads of tokens on GPUs, where each element of a head is computed with those of its place alone.
#ifndef HALYARD_SCHEDULES_GPU_HEADS_H
#define HALYARD_SCHEDULES_GPU_HEADS_H

#include "Halide.h"
#include "schedules/gpu.h"

namespace halyard::schedules::gpu {

struct Heads {
    Halide::Func y;                   // y(d, head, token, batch)
    Halide::Func results;             // what y is, all computed before y is written: y may be an input
    std::vector<Halide::Func> cells;  // cells(d, head, token, batch): what is read of the inputs
    std::vector<Halide::Func> table;  // table(pair, token, batch): what the heads of a token share
    Halide::Var d, head, token, batch, pair;
};

void heads(const Heads &stages, bool words, const Halide::Target &target);

/** What the runtime promises of a buffer of heads in words: all begin at multiples of 16 bytes. */
template<typename Buffer>
void promise_pitches_of_cells(Buffer &buffer) {
    for (int dim = 1; dim < buffer.dimensions(); dim++) {
        buffer.dim(dim).set_stride(buffer.dim(dim).stride() / words_per_cell * words_per_cell);
    }
}

template<typename Buffer>
void promise_cells_of_heads(Buffer &buffer) {
    buffer.dim(0).set_min(0);
    promise_pitches_of_cells(buffer);
}

}  // namespace halyard::schedules::gpu

#endif
