// The rows as benchmarks of Google Benchmark, with its own options and output.
#ifndef HALYARD_BENCH_GOOGLE_BENCHMARK_H
#define HALYARD_BENCH_GOOGLE_BENCHMARK_H

#include <string>
#include <vector>

#include "benchmark_case.h"

namespace halyard::bench {

/** Runs or lists the rows as `options`, all of which begin with --benchmark_, say: the library alone, with the counters
 * bytes_per_second, flops where the row has products, and fraction_of_limit. False if a row was wrong or failed; throws
 * std::runtime_error for an option that Google Benchmark does not know. */
bool run_google_benchmark(const std::vector<CaseId> &rows, std::vector<std::string> options, std::size_t cold_set,
                          halyard_isa isa);

}  // namespace halyard::bench

#endif
