// Codes and scales of a matrix that has them already.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_PACKING_REPACK_H
#define HALYARD_RUNTIME_CPU_LINEAR_PACKING_REPACK_H

#include "core/calls/pack.h"

namespace halyard {

/** Fills a block. Fails, and leaves anything there, if a scale is not finite or too large. */
void repack(Checker &check, const halyard_context &context, const PackSources &sources, char *block);

}  // namespace halyard

#endif
