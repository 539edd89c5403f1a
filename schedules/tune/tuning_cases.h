// The calls of the library by which choices are judged: the rows of the benchmark suite with its operands, and a few more for
// kernels that no row of it reaches. Which calls a kernel takes part in is found out by making them.
#ifndef HALYARD_TUNE_TUNING_CASES_H
#define HALYARD_TUNE_TUNING_CASES_H

#include <string>
#include <vector>

#include "case_families.h"
#include "space.h"

namespace halyard::tune {

using bench::CaseId;

/** "64x4096,2048x8192/cold,8x4096x11008" as shapes. Throws std::invalid_argument. `large`: those out of cache too. */
std::vector<Shape> shapes_named(const std::string &text, bool large);

/** The calls by which to judge a variant, on those shapes; empty if no call reaches it. */
std::vector<CaseId> tuning_cases(const Variant &variant, const std::vector<Shape> &shapes, int threads);
/** Calls on small odd shapes that reach a variant, to see whether its results are right. */
std::vector<CaseId> checks_of(const Variant &variant);

/** Calls by which to judge a group of the runtime's parameters. `last_level`: bytes of the largest cache. */
std::vector<CaseId> runtime_cases(const std::string &group, int threads, std::int64_t last_level);
/** Small odd ones, to see whether results are right. */
std::vector<CaseId> runtime_checks(const std::string &group);

/** The instruction set of that name as the library counts them. */
halyard_isa isa_named(const std::string &name);

}  // namespace halyard::tune

#endif
