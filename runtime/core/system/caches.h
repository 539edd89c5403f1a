// The sizes of caches, in bytes.
#ifndef HALYARD_RUNTIME_CORE_SYSTEM_CACHES_H
#define HALYARD_RUNTIME_CORE_SYSTEM_CACHES_H

#include <cstdint>

namespace halyard {

/** A processor's second-level cache. */
int64_t second_level_cache();

/** The largest cache, or the part of it that a virtual machine may expect. */
int64_t last_level_cache();

}  // namespace halyard

#endif
