// The elementwise family: activations, gated units, sums, conversions.
#ifndef HALYARD_SCHEDULES_ELEMENTWISE_H
#define HALYARD_SCHEDULES_ELEMENTWISE_H

#include <algorithm>

#include "Halide.h"
#include "schedules/machine.h"

namespace halyard::schedules {

/** Parameters, set per kernel and instruction set by schedules/tuned. */
struct ElementwiseParams {
    Halide::GeneratorParam<int> vectors{"vectors", 2};  // vectors computed per iteration
};

/** y(d, t): every element by itself. Or, where `pairs` is defined, in two updates: `whole` chunks (element of a pair, pair
 *  of a chunk, chunk) from pairs(d, t), then the `rest` of a row. */
struct Elementwise {
    Halide::Func y;
    Halide::Var d, t;
    Halide::Func pairs{};
    Halide::RDom whole{}, rest{};
};

/** Elements in a chunk. */
inline int elements_per_chunk(const ElementwiseParams &params, const Halide::Target &target) {
    return f32_lanes(target) * std::max<int>(2, params.vectors);
}

/** y is the result of the pipeline, and may take the place of an input. */
void elementwise(const Elementwise &stages, const ElementwiseParams &params, const Halide::Target &target,
                 const Halide::Pipeline &pipeline);

}  // namespace halyard::schedules

#endif
