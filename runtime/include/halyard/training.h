/** @file
 * halyard: what training needs beside the gradients of each function, in f32 on processors.
 *
 * The rules of halyard.h hold: DLPack tensors, a status and a message for every error, nothing written on failure.
 */
#ifndef HALYARD_TRAINING_H
#define HALYARD_TRAINING_H

#include "halyard.h"

#ifdef __cplusplus
extern "C" {
#endif

/** @defgroup losses Losses
 *  @{ */

/** What counts, and by how much. */
typedef struct halyard_cross_entropy_options {
    int64_t ignore_index; /**< the target of rows that do not count, of any value; followed if has_ignore_index */
    int has_ignore_index; /**< 0: every row counts */
    float gradient_scale; /**< of dlogits, finite; 0 counts as 1. 1 / (rows that count): the gradient of the mean */
} halyard_cross_entropy_options;

/** The cross entropy of each row of logits with its target t, and its gradient, without cancellation: with m the maximum of the row,
 *  rest = sum of exp(x_i - m) over all i but one whose x_i is m, and p_i = exp(x_i - m) / (1 + rest),
 *      loss = -log(p_t) = (m - x_t) + log1p(rest),   dlogits_i = gradient_scale (p_i - [i = t]),
 *  where p_t - 1 is -rest / (1 + rest) if x_t is m. So losses and gradients far below 2^-24 keep their relative accuracy.
 *  logits: f32 [..., V], V >= 1; targets: int32 or int64, the leading shape of logits ([1] where that has one axis), with any strides,
 *  each in [0, V) or ignore_index; losses: null, or f32 [leading shape of logits]; dlogits: null, or the shape of logits, and may be
 *  logits. Other overlaps are refused. options: null for none. The caller counts the targets that are not ignore_index, if it needs
 *  their number.
 *  A row whose target is ignore_index has the loss 0 and the gradient 0, whatever its logits. A logit of -Inf has the probability 0; the
 *  loss of a target there is +Inf. A row with a NaN or +Inf, or of -Inf alone, gives NaN, its loss and all its gradients, as
 *  PyTorch does. A loss above the largest float is +Inf.
 *  Numerics: rest adds 64 lanes in order, as softmax does; a row has the same bits alone and among others, for any number of threads,
 *  in place or not. Memory beyond the tensors: none. */
HALYARD_API halyard_status halyard_cross_entropy(const halyard_context *context, const DLTensor *logits,
                                                 const DLTensor *targets, const halyard_cross_entropy_options *options,
                                                 DLTensor *losses, DLTensor *dlogits);

/** mean = the sum of the losses of rows that count, in float64 in the order of the rows, / their number; NaN if none counts.
 *  losses: f32, rank 1 to 3, as halyard_cross_entropy wrote them; targets: int32 or int64 of that shape; options: those of that call,
 *  of which ignore_index is followed. count: null, or gets the number of rows that count. */
HALYARD_API halyard_status halyard_mean_loss(const DLTensor *losses, const DLTensor *targets,
                                             const halyard_cross_entropy_options *options, double *mean,
                                             int64_t *count);

/** @} */

/** @defgroup embeddings Embeddings
 *  @{ */

/** The gradient of the table of an embedding y[i] = table[input_ids[i]]: row r of dtable = (what is there if `accumulate` is not 0, else
 *  0) + the rows of dy whose id is r, added one after the other in their order, each sum rounded to f32.
 *  dy: f32 [..., d], d >= 1; input_ids: int32 or int64, the leading shape of dy ([1] where that has one axis), with any strides, each in
 *  [0, vocabulary); dtable: f32 [vocabulary, d], overlaps nothing. Learned positions have the same gradient, with positions as
 *  ids. No bit depends on the threads. Memory beyond the tensors: none. */
HALYARD_API halyard_status halyard_embedding_backward(const halyard_context *context, const DLTensor *input_ids,
                                                      const DLTensor *dy, int accumulate, DLTensor *dtable);

/** @} */

#ifdef __cplusplus
}
#endif

#endif
