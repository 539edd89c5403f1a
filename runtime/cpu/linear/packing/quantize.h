// Codes and scales of a matrix that is quantized when it is packed.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_PACKING_QUANTIZE_H
#define HALYARD_RUNTIME_CPU_LINEAR_PACKING_QUANTIZE_H

#include "core/calls/pack.h"

namespace halyard {

/** Fills a block. Fails, and leaves anything there, if a matrix holds what codes cannot. */
void quantize(Checker &check, const halyard_context &context, const PackSources &sources, char *block);

}  // namespace halyard

#endif
