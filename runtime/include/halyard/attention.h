/** @file
 * halyard: rotary position embedding, attention and the cache of keys and values.
 *
 * The rules of halyard.h hold: DLPack tensors on kDLCPU or kDLCUDA, a status and a message for every error, nothing written
 * on failure. Tensors of heads are [T, n_heads, head_dim] or [batch, T, n_heads, head_dim]: rank 3 or 4, the last axis
 * contiguous, any strides before it, so that q, k and v may be slices of one GEMM's output.
 */
#ifndef HALYARD_ATTENTION_H
#define HALYARD_ATTENTION_H

#include "halyard.h"

#ifdef __cplusplus
extern "C" {
#endif

/** @defgroup rope Rotary position embedding
 *  @{ */

/** How the angles of positions are stretched for contexts longer than a model was trained on. */
typedef enum halyard_rope_scaling HALYARD_AS_INT {
    HALYARD_ROPE_UNSCALED = 0, /**< as trained */
    HALYARD_ROPE_LINEAR = 1,   /**< positions are divided by `factor` (Chen et al. 2023) */
    HALYARD_ROPE_LLAMA3 = 2, /**< low frequencies are divided by `factor`, high ones kept, those between interpolated */
} halyard_rope_scaling;

/** What a table of rotations is made for. */
typedef struct halyard_rope_options {
    int64_t head_dim;      /**< 2 to 1024, even */
    int64_t rotary_dim;    /**< the first so many features of a head are rotated, the others kept; even, <= head_dim;
                            * 0: all. (Hugging Face: partial_rotary_factor * head_dim) */
    int64_t max_positions; /**< positions are in [0, max_positions); at most 2^24 */
    double rope_theta;     /**< > 1 and finite: 10000, 500000, ... */
    int interleaved; /**< 0: feature i turns with feature i + rotary_dim/2 (GPT-NeoX, Hugging Face); not 0: 2i with
                            * 2i + 1 (GPT-J, Llama's own code) */
    halyard_rope_scaling scaling;             /**< with the three fields below */
    double factor;                            /**< >= 1 and finite, of both scalings */
    double low_freq_factor;                   /**< of HALYARD_ROPE_LLAMA3: > 0 (1) */
    double high_freq_factor;                  /**< of HALYARD_ROPE_LLAMA3: above the low one, finite (4) */
    int64_t original_max_position_embeddings; /**< of HALYARD_ROPE_LLAMA3: 8192 for Llama 3 */
} halyard_rope_options;

/** A table of cosines and sines (Su et al. 2021): angle(position, i) = position * rope_theta^(-2i/rotary_dim), computed in
 *  float64 and rounded to f32 once. Takes 4 max_positions rotary_dim bytes. May be used by any number of threads. */
typedef struct halyard_rope halyard_rope;

/** Makes a table. */
HALYARD_API halyard_status halyard_rope_create(const halyard_rope_options *options, halyard_rope **rope);
/** Frees it; null is allowed. No call that uses it may be running. */
HALYARD_API void halyard_rope_destroy(halyard_rope *rope);
/** What it was made with, with the zeros filled in. */
HALYARD_API halyard_status halyard_rope_get_options(const halyard_rope *rope, halyard_rope_options *options);

/** y = x with each head's features rotated by the angle of its token's position.
 *  x, y: [(batch,) T, n_heads, head_dim], one dtype; y may be x. positions: null (token t has position t), or int32 or
 *  int64, [T] or [batch, T] with any strides, each in [0, max_positions). On a CUDA device `positions` is there too, and
 *  is not looked at before the kernel does: a token whose position is not in that range becomes NaN. The first call with a
 *  rope on a device copies the table there, and waits for it; it cannot be captured in a graph. */
HALYARD_API halyard_status halyard_rope_apply(const halyard_context *context, const halyard_rope *rope,
                                              const DLTensor *x, const DLTensor *positions, DLTensor *y);
/** dx = dy rotated by the negative angles: the gradient of halyard_rope_apply, with the same rules, on processors. dx may be dy. */
HALYARD_API halyard_status halyard_rope_apply_backward(const halyard_context *context, const halyard_rope *rope,
                                                       const DLTensor *dy, const DLTensor *positions, DLTensor *dx);

/** @} */

/** @defgroup kv_cache Cache of keys and values
 *  @{ */

/** The size of a cache and what it stores. */
typedef struct halyard_kv_cache_options {
    int64_t n_layers;      /**< >= 1 */
    int64_t n_sequences;   /**< >= 1: they are independent of each other */
    int64_t n_kv_heads;    /**< >= 1 */
    int64_t head_dim;      /**< 1 to 1024 */
    int64_t max_positions; /**< per layer and sequence; >= 1 */
    DLDataType dtype;      /**< f32, f16 or bf16: what is stored */
} halyard_kv_cache_options;

/** Keys and values of every layer and sequence, as the attention kernels read them. Each (layer, sequence) has a length of
 *  its own: appending to a layer makes it longer. Calls that change a cache may not run at the same time as others that
 *  use it. */
typedef struct halyard_kv_cache halyard_kv_cache;

/** Bytes that a cache takes: 2 n_layers n_sequences n_kv_heads max_positions head_dim elements, max_positions and head_dim
 *  rounded up to 16, and less than 256 bytes for each (layer, sequence, head). */
HALYARD_API halyard_status halyard_kv_cache_size(const halyard_kv_cache_options *options, int64_t *bytes);
/** Makes an empty cache. `memory` holds `bytes` bytes, 64-byte aligned, and must outlive the cache; null (and 0) lets
 *  the library allocate: physically only as the cache fills, and long sequences on huge pages where the system gives
 *  them. So a cache may be larger than memory; if it is filled beyond that, the system stops the process. */
HALYARD_API halyard_status halyard_kv_cache_create(const halyard_kv_cache_options *options, void *memory, int64_t bytes,
                                                   halyard_kv_cache **cache);
/** As halyard_kv_cache_create, in the memory of a device, kDLCPU or kDLCUDA: calls that use the cache then take tensors there.
 *  `memory` is the device's, if it is given. On a CUDA device the calls put their work into the context's stream and return, as
 *  others do; lengths are those after that work. */
HALYARD_API halyard_status halyard_kv_cache_create_on_device(const halyard_kv_cache_options *options, DLDevice device,
                                                             void *memory, int64_t bytes, halyard_kv_cache **cache);
/** Frees it; null is allowed. No call that uses it may be running. */
HALYARD_API void halyard_kv_cache_destroy(halyard_kv_cache *cache);
/** What it was made with. */
HALYARD_API halyard_status halyard_kv_cache_get_options(const halyard_kv_cache *cache,
                                                        halyard_kv_cache_options *options);
/** Positions that are filled; -1 if an argument is out of range. */
HALYARD_API int64_t halyard_kv_cache_length(const halyard_kv_cache *cache, int64_t layer, int64_t sequence);
/** Forgets what lies at and after position `length` of a sequence, in every layer; length 0 empties it. Layers that are
 *  shorter stay as they are. */
HALYARD_API halyard_status halyard_kv_cache_truncate(halyard_kv_cache *cache, int64_t sequence, int64_t length);
/** Stores T more keys and values per sequence, as they are (rounded to the cache's dtype).
 *  k, v: [(batch,) T, n_kv_heads, head_dim], any dtype; sequences: batch distinct indices, or null for 0, 1, ... All or
 *  nothing: a sequence that would not fit makes the call fail. */
HALYARD_API halyard_status halyard_kv_cache_append(const halyard_context *context, halyard_kv_cache *cache,
                                                   int64_t layer, const int64_t *sequences, const DLTensor *k,
                                                   const DLTensor *v);
/** Copies positions [first, first + T) out: k, v: [T, n_kv_heads, head_dim], any dtype; either may be null. */
HALYARD_API halyard_status halyard_kv_cache_read(const halyard_context *context, const halyard_kv_cache *cache,
                                                 int64_t layer, int64_t sequence, int64_t first, DLTensor *k,
                                                 DLTensor *v);

/** @} */

/** @defgroup attention Attention
 *  @{ */

/** All zero (or a null pointer for the whole): full attention with scores divided by sqrt(head_dim). */
typedef struct halyard_attention_options {
    float scale;            /**< of the scores: finite, >= 0; 0: 1/sqrt(head_dim) */
    int causal;             /**< not 0: the query at position p sees keys at positions <= p */
    int64_t sliding_window; /**< 0: none; else the query at p sees keys > p - sliding_window (and, without `causal`,
                             * < p + sliding_window) */
    float softcap;          /**< 0: none; else score = softcap tanh(score / softcap) (Gemma 2), 1e-30 to 1e30 */
    /** Null or [head_dim], any dtype: each head of q goes through an RMSNorm (Qwen 3, Gemma 3), before `rope`. */
    const DLTensor *q_norm_weight;
    const DLTensor *k_norm_weight; /**< the same for heads of k */
    float qk_norm_eps;             /**< finite, >= 0 */
    unsigned qk_norm_flags;        /**< HALYARD_RMS_... */
    const halyard_rope *rope;      /**< null, or what q and k (never v) are rotated by */
    /** Null, or f32 [(batch,) T, n_heads], written, which overlaps nothing: log of the sum of exp(score) over the keys that a query
     *  sees, -inf where it sees none; for gradients, and for merging results of parts of the keys. Its error is that of the
     *  largest score, and 2^-23 of itself. Not on CUDA devices. */
    DLTensor *log_sum_exp;
} halyard_attention_options;

/** y = softmax(scale q k^T + mask) v, head by head (Vaswani et al. 2017; grouped queries: Ainslie et al. 2023).
 *  q, y: [(batch,) T, n_heads, head_dim]; k, v: [(batch,) S, n_kv_heads, head_dim]; n_kv_heads >= 1 divides n_heads, and head h
 *  of q uses head h / (n_heads / n_kv_heads) of k and v. head_dim 1 to 256; dtypes f32, f16, bf16 in any combination; y may
 *  be q, and overlap nothing else. The T queries are the last T of the S positions (T <= S where a mask, a window or `rope`
 *  needs positions). A query that sees no key gives zeros. Memory beyond the tensors, for each thread: copies of one head of
 *  k and v in f32, and a block of scores whose size does not depend on T or S.
 *
 *  Numerics: keys go in blocks of 512 by absolute position; a block's scores, its maximum, exponentials, their sum and the
 *  weighted values are f32, and the blocks' results are combined in order by their row max. So a query's result depends on
 *  its own keys alone: not on the other queries, the threads, or whether k and v came at once or through a cache.
 *
 *  On a CUDA device keys go in blocks of 128, and the results of all are weighed by the row max at once. Positions that
 *  at least 16 queries all see are multiplied as matrices, up to 1024 at once, where k and v have one dtype of 16 bits and
 *  cuBLASLt is there: queries, keys after norm and `rope`, and probabilities are rounded to that dtype, and a query's result then
 *  differs by roundings with what comes with it. Memory there: up to 64 MB for the blocks' results, more if those of one
 *  query take more; as much for scores and their probabilities, and 32 MB for cuBLASLt; 16 MB and a copy of k where that goes
 *  through a norm or `rope`, and copies of k and v where they have two dtypes or do not lie at multiples of 16 bytes: in
 *  their dtype for GEMMs, else in f32. At most 2^30 - 1 positions. */
HALYARD_API halyard_status halyard_attention(const halyard_context *context, const DLTensor *q, const DLTensor *k,
                                             const DLTensor *v, const halyard_attention_options *options, DLTensor *y);

/** Appends k and v (after norm and rope) to a layer of the cache, then attends to all that the cache holds of each sequence.
 *  q, y: [(batch,) T, n_heads, head_dim]; k, v: [(batch,) T, n_kv_heads, head_dim]; sequences: batch distinct indices, or
 *  null for 0, 1, ... Token t of a sequence has position length + t. A cache in f16 or bf16 rounds keys
 *  and values. With a cache in f32 the bits are those of halyard_attention on the whole sequence, which rounds to bf16 what it
 *  multiplies where q, k and v are all bf16: there a cache in f32 has the bits of HALYARD_PRODUCTS_FULL, and a cache in bf16
 *  those of HALYARD_PRODUCTS_STORAGE. */
HALYARD_API halyard_status halyard_attention_cached(const halyard_context *context, const DLTensor *q,
                                                    const DLTensor *k, const DLTensor *v, halyard_kv_cache *cache,
                                                    int64_t layer, const int64_t *sequences,
                                                    const halyard_attention_options *options, DLTensor *y);

/** The gradients of halyard_attention with `options`, from what it wrote (Dao et al. 2022): with P = exp(scale q k^T - log_sum_exp), 0
 *  where the mask hides a key, D = sum of dy y over a row, and dS = scale P (dy v^T - D),
 *      dv = P^T dy,   dq = dS k,   dk = dS^T q,   dv and dk summed over the heads of q that share one of k.
 *  With a softcap c, t = tanh(scale q k^T / c), P is exp(c t - log_sum_exp), and dS has the slope of the cap, 1 - t^2, as another factor.
 *  q, y, dy, dq: [(batch,) T, n_heads, head_dim]; k, v, dk, dv: [(batch,) S, n_kv_heads, head_dim]; log_sum_exp: [(batch,) T, n_heads].
 *  dq, dk and dv may each be null, and overlap nothing. All are f32 on processors; head_dim 1 to 256; T <= S with causal or a window.
 *  `options`: null, or those of the forward call, of which scale, causal, sliding_window and softcap are followed. Its log_sum_exp and
 *  the norms' eps and flags are not looked at; others are refused.
 *
 *  Numerics: keys go in blocks of 192, queries in blocks of 128. dq adds blocks of keys upward, dk and dv the heads of a group one
 *  after the other and blocks of queries upward. Bits do not depend on the threads. Hidden pairs add exact zeros, and blocks
 *  that a mask hides are left out. Memory beyond the tensors, for each thread: 1.9 MB, and 5 KB for each feature of a head. */
HALYARD_API halyard_status halyard_attention_backward(const halyard_context *context, const DLTensor *q,
                                                      const DLTensor *k, const DLTensor *v, const DLTensor *y,
                                                      const DLTensor *log_sum_exp, const DLTensor *dy,
                                                      const halyard_attention_options *options, DLTensor *dq,
                                                      DLTensor *dk, DLTensor *dv);

/** @} */

#ifdef __cplusplus
}
#endif

#endif
