// The functions on CUDA devices, as the table of their backend has them. They return when the work is in the stream.
#ifndef HALYARD_RUNTIME_CUDA_BACKEND_H
#define HALYARD_RUNTIME_CUDA_BACKEND_H

#include "core/backend.h"

namespace halyard::cuda {

Backend::Operation<ElementwiseCall> elementwise;
Backend::Operation<NormCall> norm;
Backend::Operation<SoftmaxCall> softmax;
Backend::Operation<NormStatisticsCall> norm_statistics;
Backend::Operation<LinearCall> linear;
Backend::Operation<FfnCall> ffn;
Backend::Operation<AttentionCall> attention;
Backend::Operation<RopeCall> rope;
Backend::Operation<KvAppendCall> kv_append;
Backend::Operation<KvReadCall> kv_read;
Backend::Operation<EmbedCall> embed;

int64_t packed_bytes(const PackSources &sources);
/** Packs sources that are in order. `memory` is null or has `bytes` bytes on the device. */
void pack(Checker &check, const halyard_context &context, const PackSources &sources, void *memory, int64_t bytes,
          halyard_weights **weights);
void free_weights(const halyard_weights &weights);

void convert_vectors(Checker &check, const halyard_context &context, int ordinal, const ParamSource *sources,
                     int count);

}  // namespace halyard::cuda

#endif
