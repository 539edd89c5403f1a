// Which rows a run measures.
#ifndef HALYARD_BENCH_PLAN_H
#define HALYARD_BENCH_PLAN_H

#include <vector>

#include "work.h"

namespace halyard::bench {

/** Every kernel once, and the rows that say most: small calls, one thread, 16-bit types, out of cache. */
std::vector<WorkId> quick_rows(int threads);
/** Every kernel, shape and type, hot and cold, on one thread and on all. */
std::vector<WorkId> full_rows(int threads);

}  // namespace halyard::bench

#endif
