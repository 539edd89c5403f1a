// The work of a call by the model that benchmarks hold times against: what it must compute, and read and write once.
#ifndef HALYARD_OPERATIONS_COST_H
#define HALYARD_OPERATIONS_COST_H

#include <cstddef>

namespace halyard::operations {

struct Cost {
    /** Multiplications and additions of products; those of scores and values with what the queries see. */
    double flops = 0;
    /** Bytes of matrices; bytes of keys and values that the queries see. */
    std::size_t weight_bytes = 0, cache_bytes = 0;
    /** All these bytes and those of inputs and outputs; without vectors (weight, bias). */
    std::size_t bytes = 0;
};

}  // namespace halyard::operations

#endif
