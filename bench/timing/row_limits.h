// What a row is held against, measured in the row's own rounds.
#ifndef HALYARD_BENCH_TIMING_ROW_LIMITS_H
#define HALYARD_BENCH_TIMING_ROW_LIMITS_H

#include <memory>
#include <vector>

#include "benchmark_case.h"
#include "machine_limits.h"
#include "measure.h"

namespace halyard::bench {

/** Each does nothing but what the row's work cannot do without, on as many threads. Rows of layers: two ways to read the packed
 * matrices, of which the faster counts, and as many multiply-adds as the products have, of bytes where rows are in 8 bits. The slower of
 * reading and multiplying is the limit. Rows of attention, blocks and models: as many bytes read likewise, and the multiply-adds. Other
 * rows: a copy, that is the same streams of the same bytes. Out of cache there are two, with ordinary and with non-temporal stores, of
 * which the faster is the limit: the library may choose its kind of stores too. `bench_case` and `team` must outlive them. */
std::vector<std::unique_ptr<Contender>> limits_of(BenchmarkCase &bench_case, halyard_isa isa, Team &team);

}  // namespace halyard::bench

#endif
