// How many processors there are for this process.
#ifndef HALYARD_RUNTIME_CORE_SYSTEM_PROCESSORS_H
#define HALYARD_RUNTIME_CORE_SYSTEM_PROCESSORS_H

#include <cstdint>

namespace halyard {

/** Processors that the calling thread may run on, but no more than the process is given the time of. At least 1. */
int64_t usable_processors();

/** The processors whose time the CPU quotas of the process' control groups give it, rounded up; INT64_MAX if there is no
 *  quota. `root`: of the folders proc and sys. */
int64_t processors_of_quota(const char *root);

}  // namespace halyard

#endif
