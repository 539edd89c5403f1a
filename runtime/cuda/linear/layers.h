// Linear layers and feed-forward networks on tensors and weights of a CUDA device. They return when the work is in the
// stream.
#ifndef HALYARD_RUNTIME_CUDA_LINEAR_LAYERS_H
#define HALYARD_RUNTIME_CUDA_LINEAR_LAYERS_H

#include "core/calls/linear.h"
#include "core/context.h"

namespace halyard::cuda {

void linear(Checker &check, const halyard_context &context, const LinearCall &call);
void ffn(Checker &check, const halyard_context &context, const FfnCall &call);

}  // namespace halyard::cuda

#endif
