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
 *  of a chunk, chunk) from pairs(d, t), then the `rest` of a row by elements or by pairs (element of a pair, pair). */
struct Elementwise {
    Halide::Func y;
    Halide::Var d, t;
    Halide::Func pairs{};
    Halide::RDom whole{}, rest{};
    bool once = false;  // no element is computed a second time: several outputs take the place of inputs
};

/** Elements in a chunk. */
inline int elements_per_chunk(const ElementwiseParams &params, const Halide::Target &target) {
    return f32_lanes(target) * std::max<int>(2, params.vectors);
}

/** The schedule of the two updates. */
inline void elementwise_by_pairs(const Elementwise &stages, const ElementwiseParams &params,
                                 const Halide::Target &target) {
    // A vector of pairs stays in registers from its loads to its one store. No two iterations store the same element,
    // which Halide cannot see.
    Halide::Func y = stages.y, pairs = stages.pairs;
    const Halide::RDom &whole = stages.whole;
    pairs.compute_at(y, whole.z).vectorize(stages.d).store_in(Halide::MemoryType::Register);
    y.update(0).allow_race_conditions().unroll(whole.x).vectorize(whole.y);
    // Vector by vector: only the last one, if it is not whole, is masked, which in 16 bits means element by element.
    const int most = f32_lanes(target) * (stages.rest.dimensions() == 2 ? std::min<int>(2, params.vectors) : 2);
    constexpr auto masked = Halide::TailStrategy::GuardWithIf;
    const Halide::RDom &rest = stages.rest;
    if (rest.dimensions() == 2) {
        y.update(1).allow_race_conditions().unroll(rest.x).vectorize(rest.y, most, masked);
    } else {
        // In a branch, so that rows without a rest do not pay for its preparations.
        y.update(1).specialize(rest.x.extent() > 0).vectorize(rest.x, most, masked);
    }
}

/** y is the result of the pipeline, and may take the place of an input. */
void elementwise(const Elementwise &stages, const ElementwiseParams &params, const Halide::Target &target,
                 const Halide::Pipeline &pipeline);

}  // namespace halyard::schedules

#endif
