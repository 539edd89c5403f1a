// Calls of the library that reach the kernels that no row of the benchmark suite reaches: activations with a beta, all epilogues,
// statistics of rows, packing, rotary embedding, the cache of keys and values, and attention with heads so small that the softmax
// is most of it. The tuner times them, and halyard-count counts their instructions.
#ifndef HALYARD_TUNE_CASE_FAMILIES_H
#define HALYARD_TUNE_CASE_FAMILIES_H

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "bench/cases/benchmark_case.h"

namespace halyard::tune {

/** Rows, inputs and outputs of a call; `d_out` counts for products alone. */
struct Shape {
    std::int64_t rows, d, d_out;
    bool cold;
};

struct RowsAndWidth {
    std::int64_t rows, d;
};

/** The shapes of a call that does not take any rows of any width. */
struct OwnShapes {
    std::vector<RowsAndWidth> probes, checks;  // that show which kernels it calls; that show whether they are right
    std::function<std::optional<RowsAndWidth>(const Shape &shape)> timed;  // in place of a shape; nothing for none
};

/** A call of the library on any shape. */
struct CaseFamily {
    bench::Kernel kernel;
    /** Untimed, after a call, brings what came out into the outputs; may be null. */
    std::function<void(bench::BenchmarkCase &bench_case)> finish;
    std::optional<OwnShapes> own;
};

const std::vector<std::unique_ptr<CaseFamily>> &unbenched_families();

}  // namespace halyard::tune

#endif
