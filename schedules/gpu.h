// The row and elementwise families on GPUs.
#ifndef HALYARD_SCHEDULES_GPU_H
#define HALYARD_SCHEDULES_GPU_H

#include "Halide.h"
#include "schedules/elementwise.h"
#include "schedules/row.h"

namespace halyard::schedules::gpu {

/** How a row is spread over a block of threads; both are arguments of the kernel. */
struct RowThreadParams {
    Halide::Expr warps;  // that share a row
    Halide::Expr rows;   // in a block; those of a call are a multiple
    bool packed;         // buffers hold whole vectors of words, see promise_vectors()
    bool statistics;     // y is a few numbers per row, element by element
};

/** The words of a 16-byte vector, by one access. OpenCL, which the tests use, takes them one by one: Halide 21 cannot compile
 *  strict comparisons of vectors for it. */
inline void by_one_access(Halide::Stage stage, const Halide::Var &word, const Halide::Target &target) {
    if (target.has_feature(Halide::Target::OpenCL)) {
        stage.unroll(word);
    } else {
        stage.vectorize(word);
    }
}

void elementwise(const Elementwise &stages, bool packed, const Halide::Target &target);

void row(const Row &stages, const RowThreadParams &params, const Halide::Target &target);

/** Rows, heads and whatever else is counted by the later dimensions begin at multiples of 16 bytes. */
inline void promise_pitches(Halide::OutputImageParam buffer) {
    for (int dim = 1; dim < buffer.dimensions(); dim++) {
        buffer.dim(dim).set_stride(buffer.dim(dim).stride() / words_per_vector * words_per_vector);
    }
}

/** What the runtime promises of heads in whole vectors. */
inline void promise_heads(Halide::OutputImageParam buffer) {
    buffer.dim(0).set_min(0);
    promise_pitches(buffer);
}

/** What the runtime promises of a packed buffer: its rows begin at multiples of 16 bytes and are a multiple of that wide. */
inline void promise_vectors(Halide::OutputImageParam buffer) {
    buffer.dim(0).set_min(0);
    buffer.dim(0).set_extent(buffer.dim(0).extent() / words_per_vector * words_per_vector);
    if (buffer.dimensions() > 1) {
        buffer.dim(1).set_min(0);
    }
    promise_pitches(buffer);
}

}  // namespace halyard::schedules::gpu

#endif
