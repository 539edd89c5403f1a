// What a block holds, and what stacks share of its checks and calls.
#ifndef HALYARD_RUNTIME_BLOCKS_BLOCK_H
#define HALYARD_RUNTIME_BLOCKS_BLOCK_H

#include "blocks/param_vectors.h"
#include "core/check.h"
#include "core/context.h"
#include "core/device.h"
#include "core/handles/weights.h"
#include "halyard/block.h"

namespace halyard {

// ---- Norms ----

struct NormKind {
    halyard_norm norm;
    float eps;
    unsigned flags;
};

/** The vectors of one norm. */
struct NormVectors {
    KeptVector weight, bias;
};

/** x becomes y, both of the vectors' dtype; y may be x. With HALYARD_NORM_NONE nothing happens. */
halyard_status apply_norm(const halyard_context *context, const NormKind &kind, const NormVectors &vectors,
                          const DLTensor *x, DLTensor *y);

/** Refuses a norm that is none, and an eps or flags that do not go with it.
 * `flags_used`: they also serve another. */
void check_norm_kind(Checker &check, const NormKind &kind, bool flags_used);

/** The weight or bias of a norm: [features], or nothing if `vector` is null.
 * `absent`: null, or why there may be none. */
View check_norm_vector(Checker &check, const char *name, const DLTensor *vector, halyard_norm norm, bool is_bias,
                       const char *absent, int64_t features);

// ---- Calls ----

/** The cache of a call, if it has one, and the sequences in it that are the
 * call's. */
struct CachedSequences {
    halyard_kv_cache *cache;
    const int64_t *indices;  // null: 0, 1, ...
    int64_t batch;

    int64_t index(int64_t i) const { return indices ? indices[i] : i; }
    /** Positions that are filled in a layer of the i-th sequence; 0 without a
     * cache. */
    int64_t length(int64_t layer, int64_t i) const;
    /** Forgets the positions from `length` on. */
    void shorten(int64_t layer, int64_t i, int64_t length) const;
};

/** Refuses sequences that are out of range or not distinct. */
void check_sequences(Checker &check, const CachedSequences &sequences);

/** Refuses a cache that does not fit a block, and positions that its table of
 * angles or the cache does not have: where the tokens of a call go to `layer`.
 * `tokens_name`: the tensor they come from. `block_name`: what is put before
 * the names of the block's fields. */
void check_block_call(Checker &check, const halyard_block &block, const char *block_name,
                      const CachedSequences &sequences, int64_t layer, const char *tokens_name, int64_t tokens);

/** y = block(x) for checked arguments, which are where the block is: the last `outputs` tokens of each sequence, for the
 * others only the keys and values. On failure nothing is written or appended. */
halyard_status run_block(Checker &check, const halyard_context *context, const halyard_block &block, const View &x,
                         const CachedSequences &sequences, int64_t layer, int64_t outputs, const View &y);

/** Fails as a call inside of this one did: its message behind this function's
 * name. */
halyard_status fail_as(Checker &check, halyard_status status);

// ---- Configurations ----

/** Checks a configuration and fills in its zeros. `head_norms`: q_norm or
 * k_norm are given. */
void complete_block_config(Checker &check, halyard_block_config &config, bool head_norms);

/** What the calls of a block get besides its matrices, made once. */
struct BlockArguments {
    KeptVector qkv_bias, o_bias, gate_bias, up_bias, down_bias, q_norm, k_norm;
    NormVectors attention_norm, ffn_norm, attention_post_norm, ffn_post_norm;
    halyard_attention_options attention = {};
    halyard_ffn_options ffn = {};
};

}  // namespace halyard

struct halyard_block {
    halyard_block_config config = {};
    halyard_weights *qkv = nullptr, *o = nullptr, *up = nullptr, *down = nullptr;
    const halyard_rope *rope = nullptr;
    halyard::Place place;
    int64_t bytes = 0;

    // With vectors in f32 and, on a device, in the matrices' 16-bit dtype; and the memory that these lie in.
    halyard::BlockArguments wide, narrow;
    void *wide_vectors = nullptr, *narrow_vectors = nullptr;

    /** The type in which the block computes with x: on a processor f32, on a device that of x and the matrices, if they
     * have one. */
    halyard::DType between(halyard::DType x) const {
        return place.on_cuda && qkv->dtype == x ? x : halyard::DType::f32;
    }
    const halyard::BlockArguments &arguments(halyard::DType between) const {
        return between == halyard::DType::f32 ? wide : narrow;
    }

    /** Which of the block's values go through a norm: what attention and
     * feed-forward network get, what they give before it is added, and the sum.
     */
    bool norms_input() const { return places_norm(HALYARD_PRE_NORM, HALYARD_SANDWICH_NORM); }
    bool norms_output() const { return places_norm(HALYARD_POST_SUBLAYER_NORM, HALYARD_SANDWICH_NORM); }
    bool norms_sum() const { return places_norm(HALYARD_POST_NORM, HALYARD_POST_NORM); }

    halyard::NormKind norm_kind() const { return {config.norm, config.rms_norm_eps, config.norm_flags}; }
    int64_t query_features() const { return config.num_attention_heads * config.head_dim; }
    int64_t key_features() const { return config.num_key_value_heads * config.head_dim; }
    int64_t qkv_features() const { return query_features() + 2 * key_features(); }

private:
    bool places_norm(halyard_norm_placement a, halyard_norm_placement b) const {
        return config.norm != HALYARD_NORM_NONE && (config.norm_placement == a || config.norm_placement == b);
    }
};

#endif
