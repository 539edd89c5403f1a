// The row and elementwise families on GPUs.
#ifndef HALYARD_SCHEDULES_GPU_H
#define HALYARD_SCHEDULES_GPU_H

#include "Halide.h"
#include "schedules/elementwise.h"
#include "schedules/row.h"

namespace halyard::schedules::gpu {

/** How a row is spread over a block of threads; both are arguments of the kernel. */
struct RowThreadParams {
    Halide::Expr warps;       // that share a row
    Halide::Expr rows;        // in a block; those of a call are a multiple
    bool words;               // buffers hold whole cells of words, see promise_cells()
    bool statistics = false;  // y is a few numbers per row, element by element
};

/** The words of a cell, by one access. OpenCL, which the tests use, takes them one by one: Halide 21 cannot compile strict
 *  comparisons of vectors for it. */
inline void by_cells(Halide::Stage stage, const Halide::Var &word, const Halide::Target &target) {
    if (target.has_feature(Halide::Target::OpenCL)) {
        stage.unroll(word);
    } else {
        stage.vectorize(word);
    }
}

void elementwise(const Elementwise &stages, bool words, const Halide::Target &target);

/** `loaded(d, t)`, if there is one, is computed for each cell of y before that is written. */
void row(const Row &stages, const RowThreadParams &params, const Halide::Target &target,
         const Halide::Func &loaded = Halide::Func());

template<typename Buffer>
void promise_pitch_of_cells(Buffer &buffer) {
    buffer.dim(1).set_stride(buffer.dim(1).stride() / words_per_cell * words_per_cell);
}

/** What the runtime promises of a buffer in words: rows begin at multiples of 16 bytes and are a multiple of that wide. */
template<typename Buffer>
void promise_cells(Buffer &buffer) {
    buffer.dim(0).set_min(0);
    buffer.dim(0).set_extent(buffer.dim(0).extent() / words_per_cell * words_per_cell);
    if (buffer.dimensions() > 1) {
        buffer.dim(1).set_min(0);
        promise_pitch_of_cells(buffer);
    }
}

/** Of those that there are. */
template<typename Buffer>
void promise_cells(Buffer *buffer) {
    if (buffer) {
        promise_cells(*buffer);
    }
}

template<typename First, typename... Others>
void promise_cells(First &first, Others &...others) {
    promise_cells(first);
    (promise_cells(others), ...);
}

}  // namespace halyard::schedules::gpu

#endif
