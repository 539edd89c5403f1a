// Loops over vectors on ARM.
#ifndef HALYARD_SCHEDULES_ARM_VECTORS_H
#define HALYARD_SCHEDULES_ARM_VECTORS_H

#include "Halide.h"

namespace halyard::schedules::arm {

constexpr int f32_lanes = 4;

/** Vectorizes y over d, so many f32 vectors per iteration. 16-bit outputs take vectors of their own size, 8 wide, where
 *  two or more are asked for. A last vector that is not whole is masked, and vectors beyond it are passed over. */
inline void by_vectors(Halide::Func y, const Halide::Var &d, int vectors) {
    using Halide::TailStrategy;
    const Halide::Var vector("vector"), block("block");
    const bool is_narrow = y.types()[0].bits() == 16 && vectors > 1;
    const int unrolled = is_narrow ? vectors / 2 : vectors;
    y.split(d, vector, d, is_narrow ? 2 * f32_lanes : f32_lanes, TailStrategy::GuardWithIf).vectorize(d);
    if (unrolled > 1) {
        y.split(vector, block, vector, unrolled, TailStrategy::GuardWithIf).unroll(vector);
    }
}

}  // namespace halyard::schedules::arm

#endif
