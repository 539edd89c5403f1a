// Parameter vectors of blocks and stacks, and their memory.
#ifndef HALYARD_RUNTIME_BLOCKS_PARAM_VECTORS_H
#define HALYARD_RUNTIME_BLOCKS_PARAM_VECTORS_H

#include "core/backend.h"

namespace halyard {

/** Converts the vectors of several sources to a dtype, f32 on a processor, or to f32 where a norm's would be rounded, into memory
 *  for free_at(), of which `bytes` says the size, and points their targets into it. On a device it waits for that. Null after a failure. */
void *make_param_vectors(Checker &check, const halyard_context &context, Device device, DType dtype,
                         const ParamSource *sources, int count, int64_t &bytes);

/** Refuses vectors that are given where there are none, or not where there are. `names`: of the parameters. */
void check_vectors_present(Checker &check, const ParamSource *sources, const char *const *names, int count);

}  // namespace halyard

#endif
