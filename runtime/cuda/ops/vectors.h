// The vectors that blocks and stacks keep, on a device.
#ifndef HALYARD_RUNTIME_CUDA_OPS_VECTORS_H
#define HALYARD_RUNTIME_CUDA_OPS_VECTORS_H

#include "blocks/param_vectors.h"

namespace halyard::cuda {

/** Converts sources, in memory of the process or of the device, to where their targets are in `memory`, which is
 * `bytes` long and holds nothing else. Waits for that. */
void convert_vectors(Checker &check, const halyard_context &context, int ordinal, DType dtype,
                     const VectorSource *sources, int count, char *memory, int64_t bytes);

}  // namespace halyard::cuda

#endif
