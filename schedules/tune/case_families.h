// Calls of the library that reach the kernels that no row of the benchmark suite reaches: activations with a beta, all epilogues,
// rows in 8 bits with groups of 16, statistics of rows, packing, rotary embedding, the cache of keys and values, and attention with
// heads so small that the softmax is most of it. The tuner times them, and halyard-count counts their instructions.
#ifndef HALYARD_TUNE_CASE_FAMILIES_H
#define HALYARD_TUNE_CASE_FAMILIES_H

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "bench/cases/benchmark_case.h"

namespace halyard::tune {

/** Rows, inputs and outputs of a call; `d_out` counts for products alone. */
struct Shape {
    std::int64_t rows, d, d_out = 0;
    bool cold = false;
};

/** A call of the library on any shape, or on heads. */
struct CaseFamily {
    bench::Kernel kernel;
    std::vector<Shape> checks = {};   // of heads: odd shapes, the last of which reaches all kernels of the call
    std::optional<Shape> timed = {};  // in place of all others
};

/** Heads of so many features as most models have them. A width that is no multiple is three heads. */
constexpr std::int64_t usual_head_dim = 128;

const std::deque<CaseFamily> &unbenched_families();

}  // namespace halyard::tune

#endif
