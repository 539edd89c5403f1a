// Elementwise and row operations that calls on a device are made of.
#ifndef HALYARD_RUNTIME_CUDA_OPS_OPERATIONS_H
#define HALYARD_RUNTIME_CUDA_OPS_OPERATIONS_H

#include "cuda/backend.h"

namespace halyard::cuda {

/** y = x, of one shape. */
inline void cast(Checker &check, const halyard_context &context, const View &x, const View &y) {
    elementwise(check, context, {x, y});
}

/** The largest of every row of scores, times a factor, and the sum of exp(score - it), each rounded to `dtype`. */
void attention_block_sums(Checker &check, const halyard_context &context, DType dtype, float score_scale,
                          const View &scores, const View &top, const View &sum);

}  // namespace halyard::cuda

#endif
