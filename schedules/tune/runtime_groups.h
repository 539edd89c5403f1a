// The groups of the runtime's parameters (runtime/core/parameters.inc) as the tuner knows them: their spaces, and the calls
// of the library that they matter for.
#ifndef HALYARD_TUNE_RUNTIME_GROUPS_H
#define HALYARD_TUNE_RUNTIME_GROUPS_H

#include "tuning_cases.h"

namespace halyard::tune {

/** The space of each group; all of it is worth a try. */
const std::vector<SearchSpace> &runtime_spaces();
Choice runtime_defaults(const SearchSpace &space);

/** Sets the parameters of the runtime that is linked with the tuner, and leaves the others. */
void set_runtime(const Choice &choice);

/** Calls by which to judge a group. `last_level`: bytes of the largest cache. */
std::vector<TuningCase> runtime_cases(const std::string &group, int threads, std::int64_t last_level);
/** Small odd ones, to see whether results are right. */
std::vector<TuningCase> runtime_checks(const std::string &group);

}  // namespace halyard::tune

#endif
