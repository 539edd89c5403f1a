// The numbers of the runtime that differ between machines (core/parameters.inc), as this build has them.
#ifndef HALYARD_RUNTIME_CORE_PARAMETERS_H
#define HALYARD_RUNTIME_CORE_PARAMETERS_H

#include <cstdint>

namespace halyard {

struct Parameters {
#define HALYARD_PARAMETER(group, name, by_default, ...) int64_t name = by_default;
#include "core/parameters.inc"
#undef HALYARD_PARAMETER
};

/** The library only reads them; the tuner and a test write to those that are linked into them. */
extern Parameters parameters;

}  // namespace halyard

#endif
