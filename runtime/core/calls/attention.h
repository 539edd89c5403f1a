// Calls of attention, rotary position embedding and the cache of keys and values, their arguments checked.
#ifndef HALYARD_RUNTIME_CORE_CALLS_ATTENTION_H
#define HALYARD_RUNTIME_CORE_CALLS_ATTENTION_H

#include "core/calls/integers.h"
#include "core/calls/norm.h"
#include "core/check.h"
#include "core/context.h"
#include "core/handles/kv_cache.h"
#include "core/handles/rope.h"

namespace halyard {

constexpr int64_t max_head_dim = 256;  // of attention

/** A tensor of heads: [batch, tokens, heads, head_dim]. */
struct Heads {
    View view;
    int64_t batch = 1, tokens = 0, heads = 0, head_dim = 0;
    int64_t batch_stride = 0, token_stride = 0, head_stride = 0;

    Heads() = default;
    /** Heads of a tensor of rank 3 or 4. */
    explicit Heads(const View &tensor) : view(tensor) {
        const int axis = view.rank - 3;
        if (axis > 0) {
            batch = view.shape[0];
            batch_stride = view.strides[0];
        }
        tokens = view.shape[axis];
        heads = view.shape[axis + 1];
        head_dim = view.shape[axis + 2];
        token_stride = view.strides[axis];
        head_stride = view.strides[axis + 1];
    }
    /** Refuses tensors of other ranks. */
    Heads(Checker &check, const View &tensor) : view(tensor) {
        if (!check.failed() && view.rank < 3) {
            check.fail(HALYARD_INVALID_ARGUMENT,
                       "%s has rank %d, but must have rank 3 or 4: [(batch,) tokens, heads, head_dim]", view.name,
                       view.rank);
        }
        if (!check.failed()) {
            *this = Heads(view);
        }
    }

    char *at(int64_t b, int64_t token, int64_t head) const {
        return view.data + (b * batch_stride + token * token_stride + head * head_stride) * size_of(view.dtype);
    }
};

struct AttentionCall {
    Heads q, k, v, y;
    float scale = 0.0f, softcap = 0.0f;  // softcap: 0 for none
    bool causal = false;
    int64_t sliding_window = 0;          // 0: none
    View q_norm_weight, k_norm_weight;   // empty: none
    RmsNormScalars rms = {};             // of both
    const halyard_rope *rope = nullptr;  // null: none
    halyard_kv_cache *cache = nullptr;
    int64_t layer = 0;
    const int64_t *sequences = nullptr;
    View log_sum_exp;      // f32 [(batch,) tokens, heads]; empty: not wanted
    bool rounded = false;  // what is multiplied to bf16, if keys and values are kept so

    int64_t sequence(int64_t b) const { return sequence_at(sequences, b); }
    /** Position of the first key that is given. */
    int64_t first_key(int64_t b) const { return cache ? cache->length(layer, sequence(b)) : 0; }
    int64_t keys(int64_t b) const { return first_key(b) + k.tokens; }
    int64_t first_query(int64_t b) const { return keys(b) - q.tokens; }
};

/** A checked call of halyard_attention_backward: all f32. A gradient that nobody wants has an empty view. */
struct AttentionBackwardCall {
    Heads q, k, v, result, dy;
    View log_sum_exp;                    // [(batch,) tokens, heads]
    float scale = 0.0f, softcap = 0.0f;  // softcap: 0 for none
    bool causal = false;
    int64_t sliding_window = 0;  // 0: none
    Heads dq, dk, dv;
    View y;  // an output that has elements

    /** Where the first query lies. */
    int64_t first_query() const { return k.tokens - q.tokens; }
};

/** y = x rotated, or rotated back; token t of batch b is at position (b, t) or, without positions, at t. */
struct RopeCall {
    const halyard_rope *rope;
    Heads x;
    Integers positions;
    View y;
    bool back = false;  // on processors alone

    int64_t position(int64_t b, int64_t t) const { return positions.data ? positions.at(b, t) : t; }
};

/** k and v to the end of sequences of a layer. */
struct KvAppendCall {
    halyard_kv_cache *cache;
    int64_t layer;
    const int64_t *sequences;
    Heads k, v;
};

/** Positions from `first` on of a sequence of a layer to k and v, of which one may be empty. */
struct KvReadCall {
    const halyard_kv_cache *cache;
    int64_t layer, sequence, first;
    Heads k, v;
};

}  // namespace halyard

#endif
