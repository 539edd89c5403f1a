// 16-byte vectors of a GPU: four words of 32 bits, which a thread moves by one access.
#ifndef HALYARD_SCHEDULES_GPU_VECTORS_H
#define HALYARD_SCHEDULES_GPU_VECTORS_H

#include "Halide.h"

namespace halyard {

constexpr int words_per_vector = 4;

namespace schedules::gpu {

/** The words of a 16-byte vector, by one access. OpenCL, which the tests use, takes them one by one: Halide 21 cannot compile
 *  strict comparisons of vectors for it. */
inline void by_one_access(Halide::Stage stage, const Halide::Var &word, const Halide::Target &target) {
    if (target.has_feature(Halide::Target::OpenCL)) {
        stage.unroll(word);
    } else {
        stage.vectorize(word);
    }
}

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

}  // namespace schedules::gpu

}  // namespace halyard

#endif
