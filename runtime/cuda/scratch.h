// Memory of devices for the intermediates of calls, kept by the context from call to call.
#ifndef HALYARD_RUNTIME_CUDA_SCRATCH_H
#define HALYARD_RUNTIME_CUDA_SCRATCH_H

#include "core/check.h"
#include "core/context.h"

namespace halyard::cuda {

/** Memory of a device for one call. Fails `check` if there is none, or if it would have to grow while the stream is being
 *  captured. */
ScratchMemory take_scratch(Checker &check, const halyard_context &context, int ordinal, int64_t bytes);
void give_back_scratch(const halyard_context &context, const ScratchMemory &memory);

/** Frees the blocks that no call uses, when the device is done with them. */
void release_scratch(const halyard_context &context);

}  // namespace halyard::cuda

#endif
