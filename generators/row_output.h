// The last pass of a row kernel, y(d, t): by elements, or rows of a multiple of 64 features in pairs (pairs.h).
#ifndef HALYARD_GENERATORS_ROW_OUTPUT_H
#define HALYARD_GENERATORS_ROW_OUTPUT_H

#include "Halide.h"
#include "pairs.h"

namespace halyard {

/** Defines y(d, t) as element(access, d), an f32 expression of what `access`, an ElementAccess, loads. Returns the pairs,
 *  pairs(d, t), or an undefined Func. */
template<typename Output, typename Element>
Halide::Func define_row_output(Output &y, const Halide::Var &d, const Halide::Var &t, const Element &element,
                               DType dtype, bool words, const Halide::Target &target, bool using_autoscheduler) {
    using namespace Halide;
    const ElementAccess by_elements = element_access(dtype, words, target);
    if (using_autoscheduler || !by_pairs(dtype, words, target)) {
        y(d, t) = by_elements.store(element, d);
        return Func();
    }
    Func pairs("pairs");
    pairs(d, t) = pair_access(dtype, target).store(element, d);
    y.dim(0).set_min(0);
    // The schedule has a branch of its own for such rows, where nothing is left of the condition.
    y(d, t) = select(y.dim(0).extent() % 64 == 0, half_of_pair(pairs(d / 2, t), d % 2), by_elements.store(element, d));
    return pairs;
}

}  // namespace halyard

#endif
