// Which rows a run measures.
#ifndef HALYARD_BENCH_PLAN_H
#define HALYARD_BENCH_PLAN_H

#include <string>
#include <vector>

#include "machine.h"
#include "work.h"

namespace halyard::bench {

/** Every kernel of rows once, some layers, attention and a small block, and the rows that say most: small calls, one
 * thread, 16-bit types, out of cache. */
std::vector<WorkId> quick_rows(int threads);
/** Every kernel, shape and type, hot and cold, on one thread and on all. */
std::vector<WorkId> full_rows(int threads);
/** Empty, or why this machine's memory does not hold a row's matrices, keys and values in the forms of all peers. */
std::string too_large(const WorkId &row, const Machine &machine);

}  // namespace halyard::bench

#endif
