// Independent float64 reference of attention, with the error that f32 arithmetic may make on the way, bounded element
// by element.
#ifndef HALYARD_OPERATIONS_REFERENCE_ATTENTION_H
#define HALYARD_OPERATIONS_REFERENCE_ATTENTION_H

#include <cstdint>

#include "reference_linear.h"

namespace halyard::operations {

/** Which keys a query sees, and what becomes of its scores. */
struct AttentionRule {
    bool causal = false;
    std::int64_t window = 0;
    double scale = 0;    // 0: 1/sqrt(head_dim)
    double softcap = 0;  // 0: none
    /** Roundings of a weight on its way to the sum of a block: 8 in a lane and 6 of the tree; where sums go other ways, those. */
    double sum_roundings = 14;
    /** Where scores and values are products of matrices in a 16-bit type, that: queries and weights are rounded to it,
     * and values are summed in an order of their own. */
    Dtype products = Dtype::f32;

    bool sees(std::int64_t query, std::int64_t key) const;
};

/** Rotary position embedding without scaling. */
struct RopeRule {
    std::int64_t rotary_dim = 0;
    double theta = 10000;
    bool interleaved = false;
};

/** A row of one head, rotated by the angles of its position. */
ExpectedRow rotated(const ExpectedRow &x, const RopeRule &rule, std::int64_t position);

/** One head: rows of queries, the first at position `first_query`, and of keys and values from position 0 on. `log_sum_exp`: null, or
 * set to the logs of the sums of exp(score), by query. */
Matrix attention(const Matrix &queries, const Matrix &keys, const Matrix &values, std::int64_t first_query,
                 const AttentionRule &rule, ExpectedRow *log_sum_exp = nullptr);

}  // namespace halyard::operations

#endif
