// Attention on tensors of a CUDA device, its arguments checked. Returns when the work is in the stream.
#ifndef HALYARD_RUNTIME_CUDA_ATTENTION_ATTENTION_H
#define HALYARD_RUNTIME_CUDA_ATTENTION_ATTENTION_H

#include "core/calls/attention.h"

namespace halyard::cuda {

halyard_status run_attention(Checker &check, const halyard_context &context, const AttentionCall &call);

}  // namespace halyard::cuda

#endif
