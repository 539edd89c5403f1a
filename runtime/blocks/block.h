// What a block holds, and what stacks share of its checks and calls.
#ifndef HALYARD_RUNTIME_BLOCKS_BLOCK_H
#define HALYARD_RUNTIME_BLOCKS_BLOCK_H

#include <algorithm>
#include <initializer_list>

#include "blocks/matrices.h"
#include "blocks/param_vectors.h"
#include "core/backend.h"
#include "halyard/block.h"

namespace halyard {

// ---- Norms ----

struct NormKind {
    halyard_norm norm;
    float eps;
    unsigned flags;
};

/** A norm with all but its tensors. */
struct Norm {
    halyard_norm norm = HALYARD_NORM_NONE;
    RmsNormScalars scalars = {};
    View weight, bias;

    /** For rows of so many features. */
    void set(Checker &check, const NormKind &kind, int64_t features);
};

/** y = norm(x); y may be x. With HALYARD_NORM_NONE nothing happens. */
void run_norm(Checker &check, const halyard_context *context, const Norm &norm, const View &x, const View &y);
/** y = x, rounded to the dtype of y. */
void run_cast(Checker &check, const halyard_context *context, const View &x, const View &y);

/** Refuses a norm that is none, and an eps or flags that do not go with it.
 * `flags_used`: they also serve another. */
void check_norm_kind(Checker &check, const NormKind &kind, bool flags_used);

/** The weight or bias of a norm: [features], or nothing if `vector` is null.
 * `absent`: null, or why there may be none. */
View check_norm_vector(Checker &check, const char *name, const DLTensor *vector, halyard_norm norm, bool is_bias,
                       const char *absent, int64_t features);

// ---- Calls ----

/** Says in the line of a call how the matrices of a block are quantized. `prefix` is put before their names. */
void record_weights(Checker &check, const char *prefix, const halyard_block &block);

/** Refuses a result that shares memory with a matrix that came packed. */
void check_clear_of_packed(Checker &check, const View &result, const PackedMatrix &matrix);
void check_clear_of_packed(Checker &check, const View &result, const halyard_block &block);

/** Whether a block rounds what it multiplies to bf16, its activations being of a dtype: if it does so with all its matrices. */
bool rounds_in_block(const halyard_context *context, const halyard_block &block, DType activations);

/** Refuses sequences that are out of range or not distinct. */
void check_sequences(Checker &check, const CachedSequences &sequences);

/** Refuses a cache that does not fit a block, and positions that its table of angles or the cache does not have: where
 *  the tokens of a call go to `layer`. `tokens_name`: the tensor they come from. `block_name`: what is put before the
 *  names of the block's fields. */
void check_block_call(Checker &check, const halyard_block &block, const char *block_name,
                      const CachedSequences &sequences, int64_t layer, const char *tokens_name, int64_t tokens);

/** y = block(x) for checked arguments, which are where the block is: the last `outputs` tokens of each sequence, for the
 *  others only the keys and values, which go to `append`. `rounded`: what is multiplied to bf16. On failure nothing is written, and the caller rolls back. */
void run_block(Checker &check, const halyard_context *context, const halyard_block &block, const View &x,
               CacheAppend &append, int64_t layer, int64_t outputs, bool rounded, const View &y);

// ---- Configurations ----

/** Checks a configuration and fills in its zeros. `head_norms`: q_norm or
 * k_norm are given. */
void complete_block_config(Checker &check, halyard_block_config &config, bool head_norms);

/** What the calls of a block get besides the tensors of a call, made once: in a dtype in which the block computes. */
struct BlockArguments {
    View qkv_bias, o_bias, gate_bias, up_bias, down_bias, q_norm, k_norm;
    Norm attention_norm, ffn_norm, attention_post_norm, ffn_post_norm;
    AttentionCall attention;
    FfnCall ffn;
};

}  // namespace halyard

struct halyard_block {
    halyard_block_config config = {};
    halyard::PackedMatrix qkv[3];  // q, k and v; or all in the first
    halyard::PackedMatrix o, up, down;
    halyard::DType dtype = halyard::DType::f32;  // of the matrices; f32 if they differ
    const halyard_rope *rope = nullptr;
    halyard::Device device;
    int64_t bytes = 0;

    // With vectors in f32 and, on a device, in the matrices' 16-bit dtype, norms that it would round in f32; and their memory.
    halyard::BlockArguments arguments_f32, arguments_16_bit;
    void *vectors_f32 = nullptr, *vectors_16_bit = nullptr;

    bool joined() const { return !qkv[1].weights; }
    /** Calls visit(name, matrix) for each. */
    template<typename Visit>
    void each_matrix(const Visit &visit) const {
        visit(joined() ? "qkv" : "q", qkv[0]);
        if (!joined()) {
            visit("k", qkv[1]);
            visit("v", qkv[2]);
        }
        visit("o", o);
        visit("up", up);
        visit("down", down);
    }

    /** The dtype in which the block computes with x: on a processor f32, on a device that of x and the matrices, if they
     *  have one. */
    halyard::DType compute_dtype(halyard::DType x) const {
        return device.on_cuda && dtype == x ? x : halyard::DType::f32;
    }
    const halyard::BlockArguments &arguments(halyard::DType compute) const {
        return compute == halyard::DType::f32 ? arguments_f32 : arguments_16_bit;
    }

    /** Which of the block's values go through a norm: what attention and
     * feed-forward network get, what they give before it is added, and the sum.
     */
    bool norms_input() const { return places_norm({HALYARD_PRE_NORM, HALYARD_SANDWICH_NORM, HALYARD_DOUBLE_NORM}); }
    bool norms_output() const { return places_norm({HALYARD_POST_SUBLAYER_NORM, HALYARD_SANDWICH_NORM}); }
    bool norms_sum() const { return places_norm({HALYARD_POST_NORM, HALYARD_DOUBLE_NORM}); }

    halyard::NormKind norm_kind() const { return {config.norm, config.rms_norm_eps, config.norm_flags}; }
    int64_t query_features() const { return config.num_attention_heads * config.head_dim; }
    int64_t key_features() const { return config.num_key_value_heads * config.head_dim; }
    int64_t qkv_features() const { return query_features() + 2 * key_features(); }

private:
    bool places_norm(std::initializer_list<halyard_norm_placement> placements) const {
        return config.norm != HALYARD_NORM_NONE &&
               std::find(placements.begin(), placements.end(), config.norm_placement) != placements.end();
    }
};

#endif
