// The elementwise family: activations, gated units, sums, conversions.
#ifndef HALYARD_SCHEDULES_ELEMENTWISE_H
#define HALYARD_SCHEDULES_ELEMENTWISE_H

#include "Halide.h"

namespace halyard::schedules {

/** Parameters, set per kernel and instruction set by schedules/tuned. */
struct ElementwiseParams {
    Halide::GeneratorParam<int> vectors{"vectors", 2};  // vectors computed per iteration
};

/** y(d, t): every element by itself. */
struct Elementwise {
    Halide::Func y;
    Halide::Var d, t;
};

void elementwise(const Elementwise &stages, const ElementwiseParams &params, const Halide::Target &target);

}  // namespace halyard::schedules

#endif
