// y(d, t) = f of the same element of each input: by elements, or in pairs (pairs.h); and how that is scheduled.
#ifndef HALYARD_GENERATORS_ELEMENTWISE_H
#define HALYARD_GENERATORS_ELEMENTWISE_H

#include "Halide.h"
#include "pairs.h"
#include "schedules/elementwise.h"
#include "schedules/gpu.h"

namespace halyard {

/** Defines y(d, t) as element(access, d), an f32 expression of what `access`, an ElementAccess, loads of the inputs.
 *  `words`: see row_storage.h. Returns what there is to schedule. */
template<typename Output, typename Element>
schedules::Elementwise define_elementwise(Output &y, const Halide::Var &d, const Halide::Var &t, const Element &element,
                                          DType dtype, bool words, const schedules::ElementwiseParams &params,
                                          const Halide::Target &target, bool using_autoscheduler) {
    using namespace Halide;
    const ElementAccess by_elements = element_access(dtype, words, target);
    if (using_autoscheduler || !by_pairs(dtype, words, target)) {
        y(d, t) = by_elements.store(element, d);
        return {y, d, t};
    }
    Func pairs("pairs");
    pairs(d, t) = pair_access(dtype, target).store(element, d);

    // Whole chunks in pairs, and the rest of the row by elements.
    const int chunk = schedules::elements_per_chunk(params, target);
    const Expr width = y.dim(0).extent();
    y.dim(0).set_min(0);
    const RDom whole(0, 2, 0, chunk / 2, 0, width / chunk, "whole");
    const RDom rest(width / chunk * chunk, width % chunk, "rest");
    y(d, t) = undef<uint16_t>();
    y(chunk * whole.z + 2 * whole.y + whole.x, t) = half_of_pair(pairs(chunk / 2 * whole.z + whole.y, t), whole.x);
    y(rest, t) = by_elements.store(element, rest);
    return {y, d, t, pairs, whole, rest};
}

/** The schedule of `stages` for the target. `tensors`: all that have rows, inputs and output. */
template<typename... Tensors>
void schedule_elementwise(const schedules::Elementwise &stages, bool words, const schedules::ElementwiseParams &params,
                          const Halide::Target &target, const Halide::Pipeline &pipeline, Tensors &&...tensors) {
    if (!target.has_gpu_feature()) {
        schedules::elementwise(stages, params, target, pipeline);
        return;
    }
    if (words) {
        schedules::gpu::promise_cells(tensors...);
    }
    schedules::gpu::elementwise(stages, words, target);
}

}  // namespace halyard

#endif
