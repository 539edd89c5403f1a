// What attention and its gradients ask of their tensors and options.
#ifndef HALYARD_RUNTIME_API_ATTENTION_SHAPES_H
#define HALYARD_RUNTIME_API_ATTENTION_SHAPES_H

#include <algorithm>
#include <cmath>

#include "core/calls/attention.h"

namespace halyard {

/** q and y, k and v: of one shape each, and fitting heads. */
inline void check_heads(Checker &check, const Heads &q, const Heads &k, const View &v, const View &y) {
    if (!check.failed() && k.view.rank != q.view.rank) {
        check.fail(HALYARD_INVALID_ARGUMENT, "k has rank %d, but must have the rank of q, which is %d", k.view.rank,
                   q.view.rank);
    }
    if (!check.failed() && k.batch != q.batch) {
        check.fail(HALYARD_INVALID_ARGUMENT, "k has a batch of %lld, but must have that of q, which is %lld",
                   static_cast<long long>(k.batch), static_cast<long long>(q.batch));
    }
    if (!check.failed() && (q.head_dim < 1 || q.head_dim > max_head_dim)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "q has heads of %lld features, but must have 1 to %lld",
                   static_cast<long long>(q.head_dim), static_cast<long long>(max_head_dim));
    }
    if (!check.failed() && k.head_dim != q.head_dim) {
        check.fail(HALYARD_INVALID_ARGUMENT, "k has heads of %lld features, but must have %lld, as q has",
                   static_cast<long long>(k.head_dim), static_cast<long long>(q.head_dim));
    }
    if (!check.failed() && q.heads < 1) {
        check.fail(HALYARD_INVALID_ARGUMENT, "q has no heads, but must have at least one");
    }
    if (!check.failed() && (k.heads < 1 || q.heads % k.heads != 0)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "k has %lld heads, but must have a number that divides the %lld of q",
                   static_cast<long long>(k.heads), static_cast<long long>(q.heads));
    }
    check.same_shape(k.view, v);
    check.same_shape(q.view, y);
}

/** What masks and rotations need. */
inline void check_queries_are_last(Checker &check, const Heads &q, const Heads &k) {
    if (!check.failed() && q.tokens > k.tokens) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "q has %lld tokens and k %lld, but with causal, sliding_window "
                   "or rope the queries are the last of the "
                   "keys' positions",
                   static_cast<long long>(q.tokens), static_cast<long long>(k.tokens));
    }
}

inline void check_window(Checker &check, const char *name, int64_t window) {
    if (!check.failed() && window < 0) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is %lld, but must not be negative", name,
                   static_cast<long long>(window));
    }
}

/** f32, of the shape of q without its features. */
inline void check_log_sum_exp_form(Checker &check, const View &sums, const Heads &q) {
    if (check.failed()) {
        return;
    }
    if (sums.dtype != DType::f32) {
        check.fail(HALYARD_UNSUPPORTED, "log_sum_exp must have dtype f32");
    } else if (sums.rank != q.view.rank - 1 || !std::equal(sums.shape, sums.shape + sums.rank, q.view.shape)) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "log_sum_exp must have the shape of q without its features: [%s%lld, %lld]",
                   q.view.rank > 3 ? "batch, " : "", static_cast<long long>(q.tokens), static_cast<long long>(q.heads));
    }
}

inline float scale_of_scores(const halyard_attention_options &o, const Heads &q) {
    return o.scale > 0.0f ? o.scale : static_cast<float>(1.0 / std::sqrt(static_cast<double>(q.head_dim)));
}

}  // namespace halyard

#endif
