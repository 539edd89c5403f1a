// Which rows of a work list fit this machine.
#ifndef HALYARD_BENCH_PLAN_H
#define HALYARD_BENCH_PLAN_H

#include <string>

#include "benchmark_case.h"
#include "timing/machine.h"

namespace halyard::bench {

/** Empty, or why this machine's memory does not hold a row's matrices, keys and values in the forms of all peers. */
std::string too_large(const CaseId &row, const Machine &machine);

/** Whether the library was built with a row's operation and dtypes. */
bool is_built(const CaseId &row);

}  // namespace halyard::bench

#endif
