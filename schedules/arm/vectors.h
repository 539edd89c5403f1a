// Loops over vectors on ARM.
#ifndef HALYARD_SCHEDULES_ARM_VECTORS_H
#define HALYARD_SCHEDULES_ARM_VECTORS_H

#include "Halide.h"
#include "schedules/arm/rest.h"

namespace halyard::schedules::arm {

constexpr int f32_lanes = 4;

/** Vectors of 16-bit outputs are of their own size where two or more f32 vectors are asked for. */
inline bool is_narrow(const Halide::Func &y, int vectors) {
    return y.types()[0].bits() == 16 && vectors > 1;
}

/** Elements of a vector that is stored, and vectors of an iteration, for so many f32 vectors per iteration. */
inline int stored_lanes(const Halide::Func &y, int vectors) {
    return is_narrow(y, vectors) ? 2 * f32_lanes : f32_lanes;
}
inline int stored_vectors(const Halide::Func &y, int vectors) {
    return is_narrow(y, vectors) ? vectors / 2 : vectors;
}

/** Vectorizes a stage of y over d, so many f32 vectors per iteration. A last vector that is not whole is masked, each
 *  of its elements loaded and stored by itself, unless the tail is RoundUp: then rows are whole iterations. */
inline void by_vectors(const Halide::Func &y, Halide::Stage stage, const Halide::Var &d, int vectors,
                       Halide::TailStrategy tail = Halide::TailStrategy::GuardWithIf) {
    const Halide::Var vector("vector"), block("block");
    stage.split(d, vector, d, stored_lanes(y, vectors), tail).vectorize(d);
    if (stored_vectors(y, vectors) > 1) {
        stage.split(vector, block, vector, stored_vectors(y, vectors), tail).unroll(vector);
    }
}

/** As by_vectors, for the rows of y, the result of the pipeline. Their rest is a whole iteration that ends with the row,
 *  for which one address is computed, or in rows shorter than that a vector. Rows that have no vector are masked. */
inline void by_overlapping_vectors(Halide::Func y, const Halide::Var &d, int vectors, Halide::Pipeline pipeline) {
    using Halide::TailStrategy;
    const Halide::Var vector("vector"), block("block");
    const int lanes = stored_lanes(y, vectors), unrolled = stored_vectors(y, vectors);
    const Halide::Expr width = y.output_buffers()[0].dim(0).extent();
    if (unrolled > 1) {
        y.specialize(width >= lanes * unrolled)
            .split(d, block, d, lanes * unrolled, TailStrategy::ShiftInwards)
            .split(d, vector, d, lanes)
            .vectorize(d)
            .unroll(vector);
    }
    y.specialize(width >= lanes).split(d, vector, d, lanes, TailStrategy::ShiftInwards).vectorize(d);
    by_vectors(y, y, d, 1);
    pipeline.add_custom_lowering_pass(new RestReadFirst);
}

}  // namespace halyard::schedules::arm

#endif
