// The processor's functions, as the table of its backend has them.
#ifndef HALYARD_RUNTIME_CPU_BACKEND_H
#define HALYARD_RUNTIME_CPU_BACKEND_H

#include "core/backend.h"
#include "core/row_iterator.h"

namespace halyard {

namespace cpu {

Backend::Operation<ElementwiseCall> elementwise;
Backend::Operation<NormCall> norm;
Backend::Operation<NormBackwardCall> norm_backward;
Backend::Operation<SoftmaxCall> softmax;
Backend::Operation<SoftmaxBackwardCall> softmax_backward;
Backend::Operation<NormStatisticsCall> norm_statistics;
Backend::Operation<LinearCall> linear;
Backend::Operation<LinearBackwardCall> linear_backward;
Backend::Operation<FfnCall> ffn;
Backend::Operation<FfnBackwardCall> ffn_backward;
Backend::Operation<AttentionCall> attention;
Backend::Operation<AttentionBackwardCall> attention_backward;
Backend::Operation<RopeCall> rope;
Backend::Operation<KvAppendCall> kv_append;
Backend::Operation<KvReadCall> kv_read;
Backend::Operation<EmbedCall> embed;
Backend::Operation<EmbedBackwardCall> embed_backward;
Backend::Operation<CrossEntropyCall> cross_entropy;
Backend::Operation<DequantizeCall> dequantize;
Backend::Operation<GradientNormCall> gradient_norm;
Backend::Operation<SgdCall> sgd;
Backend::Operation<AdamwCall> adamw;

int64_t packed_bytes(const PackSources &sources);
void pack(Checker &check, const halyard_context &context, const PackSources &sources, void *memory, int64_t bytes,
          halyard_weights **weights);
void update(Checker &check, const halyard_context &context, const PackSources &sources, const halyard_weights &weights);
void free_weights(const halyard_weights &weights);

void convert_vectors(Checker &check, const halyard_context &context, int device, const ParamSource *sources, int count);

}  // namespace cpu

/** 1/sqrt(...) and, for a LayerNorm, the mean of rows [first_row, first_row + rows) of the first tensor of `x`, f32
 *  each, on the calling thread. */
void row_statistics(halyard_isa isa, const Rows &x, DType dtype, halyard_norm norm, const RmsNormScalars &scalars,
                    int64_t first_row, int64_t rows, float *scale, float *mean);

}  // namespace halyard

#endif
