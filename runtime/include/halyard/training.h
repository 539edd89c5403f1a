/** @file
 * halyard: what training needs beside the gradients of each function, which are declared beside it: losses, the gradient of
 * embeddings, and optimizers, in f32 on processors.
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

/** @defgroup optimizers Optimizers
 *
 *  Steps of optimizers on processors, in one pass over memory. Tensors are f32 and of one shape, with any strides before a
 *  contiguous last axis, and none may overlap another. A parameter and the state of its optimizer are written in place. The bits
 *  are the same on every instruction set with fused multiply-add and for any number of threads: formulas are computed in the order
 *  in which they are written, in f32, each operation rounded once. What is a number in them is computed in double from the options
 *  and rounded to f32 once.
 *
 *  Gradients are clipped by way of gradient_scale: with the norm of all of them, min(1, max_norm / (norm + 1e-6)) is what
 *  torch.nn.utils.clip_grad_norm_ multiplies them by.
 *  @{ */

/** *norm = sqrt(sum of x^2) over all elements x of `count` tensors, f32 of any shapes, on processors. Squares are added in double, so
 *  that none overflows: a tensor's elements in row-major order, by chunks of 8192 with 32 sums each, which are added pairwise,
 *  and then chunk after chunk and tensor after tensor. Empty tensors, and a count of 0, add nothing. NaN gives NaN, else Inf
 *  gives Inf. */
HALYARD_API halyard_status halyard_gradient_norm(const halyard_context *context, const DLTensor *const *gradients,
                                                 int64_t count, double *norm);

/** What halyard_sgd_step takes beside its tensors: the arguments of torch.optim.SGD, whose dampening is 0. Numbers are finite in f32
 *  and not negative. */
typedef struct halyard_sgd_options {
    double lr;             /**< the learning rate */
    double momentum;       /**< 0: none, and no momentum_buffer */
    double weight_decay;   /**< L2: this times the parameter is added to the gradient */
    int nesterov;          /**< not 0: Nesterov's momentum, which needs a momentum */
    double gradient_scale; /**< above 0: what the gradient is multiplied by first, 1 if it is to stay */
} halyard_sgd_options;

/** A step of stochastic gradient descent (torch.optim.SGD; Sutskever et al. 2013):
 *
 *    g = gradient_scale gradient + weight_decay p     b = momentum b + g     p = p - lr b
 *
 *  p being the parameter and b momentum_buffer, which is zeros before the first step; with Nesterov's momentum
 *  p = p - lr (g + momentum b), and with a momentum of 0 p = p - lr g, where momentum_buffer must be null. A weight_decay of 0 leaves
 *  its term out. */
HALYARD_API halyard_status halyard_sgd_step(const halyard_context *context, DLTensor *parameter,
                                            const DLTensor *gradient, DLTensor *momentum_buffer,
                                            const halyard_sgd_options *options);

/** What halyard_adamw_step takes beside its tensors: the arguments of torch.optim.AdamW and Adam. All but the betas are finite
 *  in f32 and not negative. */
typedef struct halyard_adamw_options {
    double lr;             /**< the learning rate */
    double beta1;          /**< of the first moment: at least 0 and below 1 (0.9) */
    double beta2;          /**< of the second moment: at least 0 and below 1 (0.999) */
    double eps;            /**< added to the root of the second moment (1e-8) */
    double weight_decay;   /**< 0: none */
    double gradient_scale; /**< above 0: what the gradient is multiplied by first, 1 if it is to stay */
    int decoupled;         /**< not 0: AdamW's weight decay; 0: Adam's, by the gradient */
} halyard_adamw_options;

/** A step of AdamW (Loshchilov and Hutter 2017) or Adam (Kingma and Ba 2014) as in torch.optim, p being the parameter, m and v the
 *  moments, which are zeros before the first step, and `step` the number of this step, from 1 on:
 *
 *    g = gradient_scale gradient                               of Adam + weight_decay p
 *    m = m + (1 - beta1) (g - m)                               v = beta2 v + ((1 - beta2) g) g
 *    p = p - (lr weight_decay) p                               of AdamW alone
 *    p = p - ((lr r / c1) m) / (sqrt(v) + eps r)               c1 = 1 - beta1^step, r = sqrt(1 - beta2^step)
 *
 *  which is (lr / c1) m / (sqrt(v) / r + eps) with a division less. 1 - beta, lr weight_decay, lr r / c1 and eps r are numbers in
 *  double, the powers by repeated squaring, which rounds alike on every machine. A weight_decay of 0 leaves its term out. An element
 *  without a gradient so far, and with eps = 0, becomes NaN. */
HALYARD_API halyard_status halyard_adamw_step(const halyard_context *context, DLTensor *parameter,
                                              const DLTensor *gradient, DLTensor *first_moment, DLTensor *second_moment,
                                              int64_t step, const halyard_adamw_options *options);

/** @} */

#ifdef __cplusplus
}
#endif

#endif
