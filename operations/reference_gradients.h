// Independent float64 references of gradients, by their formulas; tests hold them against differences of the forward references and
// against slopes of formulas.h on dual numbers.
#ifndef HALYARD_OPERATIONS_REFERENCE_GRADIENTS_H
#define HALYARD_OPERATIONS_REFERENCE_GRADIENTS_H

#include "reference_attention.h"

namespace halyard::operations {

/** A norm's gradient from one row of x and dy. The bias of the parameters does not count. */
struct NormGradient {
    ExpectedRow dx;
    ExpectedRow weight_terms;  // dy n, n being the normalized row, whose sum over rows is dweight
};
NormGradient layer_norm_gradient(const Row &x, const Row &dy, const NormParameters &parameters);
NormGradient rms_norm_gradient(const Row &x, const Row &dy, const NormParameters &parameters);

/** From a row of softmax's result. */
ExpectedRow softmax_gradient(const Row &y, const Row &dy, double scale);

/** The loss of a row of logits with its target, and `scale` times its gradient: -log(softmax(logits)[target]). */
struct CrossEntropy {
    Expected loss;
    ExpectedRow dlogits;
};
CrossEntropy cross_entropy(const Row &logits, std::size_t target, double scale);

/** Sums over rows, column by column, in blocks of 32 rows. */
ExpectedRow sum_of_rows(const Matrix &rows, std::size_t width);

/** The gradients of a linear layer's matrix and input, from dz, the gradient of its sums: [row][out], within its errors.
 *
 *  dx = dz W, of rows [out][in] of W; `inputs` outputs are summed, those that fill panels with zeros included. */
Matrix linear_input_gradient(const Matrix &dz, const std::vector<Row> &weight, std::int64_t inputs);
/** start + dz^T x, [out][in], from rows of x; `start` may be empty. */
Matrix linear_weight_gradient(const Matrix &dz, const std::vector<Row> &x, const std::vector<Row> &start);

/** What the gradients of a head of q are made of, by token: what the forward call read and wrote, and the gradient of its result. */
struct AttentionHead {
    std::vector<Row> q, y, dy;
    Row log_sum_exp;
};
/** By token and feature; dq by head of q. */
struct AttentionGradients {
    std::vector<Matrix> dq;
    Matrix dk, dv;
};
/** Takes one head of keys and values, and all heads of q that share it. The first query is at position `first_query`; of the rule
 *  the mask, the scale and the soft cap count. */
AttentionGradients attention_gradients(const std::vector<AttentionHead> &heads, const std::vector<Row> &keys,
                                       const std::vector<Row> &values, std::int64_t first_query,
                                       const AttentionRule &rule);

}  // namespace halyard::operations

#endif
