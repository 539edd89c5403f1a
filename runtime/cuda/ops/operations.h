// Operations on tensors of a CUDA device, their arguments checked. They return when the work is in the stream.
#ifndef HALYARD_RUNTIME_CUDA_OPS_OPERATIONS_H
#define HALYARD_RUNTIME_CUDA_OPS_OPERATIONS_H

#include <initializer_list>

#include "core/calls/norm.h"
#include "core/check.h"
#include "core/context.h"

namespace halyard::cuda {

/** A kernel on inputs and an output of one shape; `beta` null where it takes none; an element of y takes `pair` elements
 *  of the first input. */
void elementwise(Checker &check, const halyard_context *context, Kernel kernel, std::initializer_list<View> inputs,
                 const float *beta, const View &y, int pair);

/** A norm or softmax. `reduced` features of each row enter its reductions. */
void row(Checker &check, const halyard_context *context, const RowOperation &operation, int64_t reduced, const View &x,
         const View &y);

/** The sum of x and residual, and its norm. */
void add_row(Checker &check, const halyard_context *context, const RowOperation &operation, const View &x,
             const View &residual, const View &sum, const View &y);

/** 1/sqrt(...) and, for a LayerNorm, the mean of every row, in f32 row vectors. */
void row_statistics(Checker &check, const halyard_context *context, halyard_norm norm, RmsNormScalars *rms, float *eps,
                    const View &x, const View &mean, const View &scale);

/** Of every row of scores, times a factor: the largest, and the sum of exp(score - it), each rounded to `dtype`. */
void attention_block_sums(Checker &check, const halyard_context *context, DType dtype, float *score_scale,
                          const View &scores, const View &top, const View &sum);

}  // namespace halyard::cuda

#endif
