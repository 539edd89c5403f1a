// The elementwise family: activations, gated units, sums, conversions.
#ifndef HALYARD_SCHEDULES_ELEMENTWISE_H
#define HALYARD_SCHEDULES_ELEMENTWISE_H

#include "Halide.h"
#include "schedules/machine.h"

namespace halyard::schedules {

/** Parameters, set per kernel and instruction set by schedules/tuned. */
struct ElementwiseParams {
    Halide::GeneratorParam<int> vectors{"vectors", 2};  // vectors computed per iteration
};

/** y(d, t): every element by itself. Or, where `pairs` is defined, elements 2d and 2d + 1 from pairs(d, t). */
struct Elementwise {
    Halide::Func y;
    Halide::Var d, t;
    Halide::Func pairs{};
    int elements = 0;  // of y in an iteration, where it is made of pairs
    bool any_width = false;
};

/** The schedule of a result that is made of pairs. */
inline void elementwise_by_pairs(const Elementwise &stages) {
    // A vector of pairs stays in registers from its loads to its one store.
    Halide::Func y = stages.y, pairs = stages.pairs;
    const Halide::Var pair("pair"), half("half");
    pairs.compute_at(y, stages.d).vectorize(stages.d).store_in(Halide::MemoryType::Register);
    y.split(stages.d, stages.d, pair, stages.elements, Halide::TailStrategy::RoundUp)
        .split(pair, pair, half, 2)
        .reorder(half, pair, stages.d)
        .unroll(half)
        .vectorize(pair);
}

/** y is the result of the pipeline, and may take the place of an input. Unless it has any width its rows are whole iterations: the
 *  runtime calls kernels with multiples of 64 columns (runtime/core/whole_columns.h), since masks took three quarters of their code. */
void elementwise(const Elementwise &stages, const ElementwiseParams &params, const Halide::Target &target);

}  // namespace halyard::schedules

#endif
