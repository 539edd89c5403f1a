/** @file
 * halyard: transformer blocks and stacks of them.
 *
 * A block is attention and a feed-forward network with their norms and residuals; a stack is token embedding, blocks, a
 * last norm and the output projection. Both hold their weights packed and are constant after they are made: any number
 * of threads may run one, each with a cache of its own. The rules of halyard.h hold.
 *
 * Between its GEMMs a block computes in f32 whatever the dtype of x, and rounds once when y is stored; a stack keeps
 * the residual stream in f32 from the embedding to the logits. What a GEMM takes is rounded to bf16 where all matrices and x
 * (of a stack all matrices of the block) are of that dtype, unless the context says otherwise (halyard_context_set_products).
 *
 * Both are for processors or, in a library that was built with HALYARD_CUDA, for a CUDA device, where their weights lie
 * then: calls take tensors and caches of that device, put their work into the context's stream and return. There a block
 * computes in the 16-bit dtype of x and its matrices if they have one, else in f32, and rounds to it what lies between its
 * GEMMs; the residual stream of a stack has the dtype of its blocks' matrices, or f32 if they differ.
 */
#ifndef HALYARD_BLOCK_H
#define HALYARD_BLOCK_H

#include "attention.h"
#include "halyard.h"

#ifdef __cplusplus
extern "C" {
#endif

/** @defgroup blocks Blocks
 *  @{ */

/** Where the norms of a block are; Sub is attention, then the feed-forward network. */
typedef enum halyard_norm_placement HALYARD_AS_INT {
    HALYARD_PRE_NORM = 0,           /**< x + Sub(N(x)): GPT-2, Llama */
    HALYARD_POST_NORM = 1,          /**< N(x + Sub(x)): Vaswani et al. 2017 */
    HALYARD_POST_SUBLAYER_NORM = 2, /**< x + N(Sub(x)): OLMo 2 */
    HALYARD_SANDWICH_NORM = 3,      /**< x + N'(Sub(N(x))): Gemma 2 */
    HALYARD_DOUBLE_NORM = 4,        /**< N'(x + Sub(N(x))): Pre-LN with a norm of each sum */
} halyard_norm_placement;

/** Fields are named as in the configuration files of Hugging Face transformers, where those have them. */
typedef struct halyard_block_config {
    int64_t hidden_size;         /**< features of a token, d_model */
    int64_t intermediate_size;   /**< width of the feed-forward network, d_ff */
    int64_t num_attention_heads; /**< heads of q */
    int64_t num_key_value_heads; /**< divides num_attention_heads; 0: as many */
    int64_t head_dim;            /**< 0: hidden_size / num_attention_heads, which must then divide */

    halyard_norm norm; /**< HALYARD_NORM_RMS, HALYARD_NORM_LAYER, or HALYARD_NORM_NONE for a block without */
    halyard_norm_placement norm_placement; /**< where the norms are */
    float rms_norm_eps;                    /**< of every norm, LayerNorm (layer_norm_eps) too: finite, >= 0 */
    unsigned norm_flags;                   /**< HALYARD_RMS_..., of RMSNorm: HALYARD_RMS_UNIT_OFFSET for Gemma */

    halyard_activation hidden_act; /**< of the feed-forward network */
    float swish_beta;              /**< of HALYARD_SWISH, as for halyard_swish */
    int gated_mlp;                 /**< not 0: down(act(gate x) * up x); 0: down(act(up x)) */

    int causal;                   /**< not 0: a decoder; with a cache it must be one */
    int64_t sliding_window;       /**< 0: none */
    float query_pre_attn_scalar;  /**< scores are divided by its root; finite, >= 0; 0: head_dim */
    float attn_logit_softcapping; /**< 0: none; else 1e-30 to 1e30 */
    /** rope_theta 0: no rotary embedding. head_dim and max_positions may be 0: the block's head_dim, and
     *  max_position_embeddings. */
    halyard_rope_options rope;
    int64_t max_position_embeddings; /**< bound of positions where there is a rotary embedding */
} halyard_block_config;

/** Fills a configuration with what a family of models has in common; the sizes (hidden_size, intermediate_size, heads,
 *  max_position_embeddings) are left 0 for the caller. preset: "original_2017" (the encoder's block; `causal` makes it
 *  a decoder's), "bert", "gpt2", "llama", "qwen", "gemma" (2: sandwich norms, soft caps), "mistral" (7B v0.1: with its
 *  window). docs/blocks.md has them in a table. */
HALYARD_API halyard_status halyard_block_config_preset(const char *preset, halyard_block_config *config);
/** The names of the presets, in a null-terminated array. */
HALYARD_API const char *const *halyard_block_presets(void);

/** Matrices of a block that are quantized already, as halyard_weights_pack_codes takes them: packed without a loss by
 *  halyard_block_create, and not needed afterwards. For processors. Formats may differ, but gate_proj and up_proj, which lie side by
 *  side, have one. q, k and v of one format of GGUF are multiplied as one matrix, others one by one, which changes no bit. */
typedef struct halyard_block_codes {
    const halyard_codes *q_proj;    /**< num_attention_heads head_dim out_features, hidden_size in_features */
    const halyard_codes *k_proj;    /**< num_key_value_heads head_dim out_features */
    const halyard_codes *v_proj;    /**< num_key_value_heads head_dim out_features */
    const halyard_codes *qkv_proj;  /**< one matrix of their outputs one after another */
    const halyard_codes *o_proj;    /**< hidden_size out_features */
    const halyard_codes *gate_proj; /**< of gated_mlp; codes where up_proj is */
    const halyard_codes *up_proj;   /**< intermediate_size out_features */
    const halyard_codes *down_proj; /**< hidden_size out_features, intermediate_size in_features */
} halyard_block_codes;

/** Matrices of a block that are packed already, of any dtype or quantized, with the features of halyard_block_codes. They are used where
 *  they are: they lie where the block is, must outlive it, are not freed with it, and do not count in halyard_block_bytes. A norm
 *  that is folded into one is part of it. */
typedef struct halyard_block_packed {
    const halyard_weights *q_proj;    /**< these three, or qkv_proj */
    const halyard_weights *k_proj;    /**< num_key_value_heads head_dim outputs */
    const halyard_weights *v_proj;    /**< num_key_value_heads head_dim outputs */
    const halyard_weights *qkv_proj;  /**< one matrix of their outputs one after another */
    const halyard_weights *o_proj;    /**< the output projection of attention */
    const halyard_weights *up_proj;   /**< of gated_mlp gate and up, packed as a gated matrix */
    const halyard_weights *down_proj; /**< hidden_size outputs */
} halyard_block_packed;

/** What a block is made of. Tensors are read by halyard_block_create and not needed afterwards: matrices are [out, in] or
 *  [in, out] as `layout` says, all of one dtype; vectors have any dtype. Null means absent. All are in one place. Each matrix comes in
 *  one way: as a tensor, in `codes` or in `packed`. Those of a block may differ in that, but for gate_proj and up_proj. */
typedef struct halyard_block_weights {
    halyard_weight_layout layout;  /**< of the matrices */
    const DLTensor *q_proj;        /**< these three, or qkv_proj */
    const DLTensor *k_proj;        /**< num_key_value_heads head_dim outputs */
    const DLTensor *v_proj;        /**< num_key_value_heads head_dim outputs */
    const DLTensor *qkv_proj;      /**< one matrix of their outputs one after another, q first: GPT-2's c_attn */
    const DLTensor *o_proj;        /**< the output projection of attention */
    const DLTensor *q_proj_bias;   /**< optional, as all biases */
    const DLTensor *k_proj_bias;   /**< optional */
    const DLTensor *v_proj_bias;   /**< optional */
    const DLTensor *qkv_proj_bias; /**< optional */
    const DLTensor *o_proj_bias;   /**< optional */
    const DLTensor *q_norm;    /**< [head_dim], optional: RMSNorm of each head of q, with the block's eps and flags */
    const DLTensor *k_norm;    /**< [head_dim], optional: the same of k */
    const DLTensor *gate_proj; /**< of gated_mlp */
    const DLTensor *up_proj;   /**< intermediate_size outputs */
    const DLTensor *down_proj; /**< hidden_size outputs */
    const DLTensor *gate_proj_bias;      /**< optional, of gated_mlp */
    const DLTensor *up_proj_bias;        /**< optional */
    const DLTensor *down_proj_bias;      /**< optional */
    const DLTensor *attention_norm;      /**< the norm of attention; optional, as 1 */
    const DLTensor *attention_norm_bias; /**< optional, of LayerNorm */
    const DLTensor *ffn_norm;            /**< the norm of the feed-forward network; optional, as 1 */
    const DLTensor *ffn_norm_bias;       /**< optional, of LayerNorm */
    const DLTensor *attention_post_norm; /**< N' of HALYARD_SANDWICH_NORM and HALYARD_DOUBLE_NORM; optional, as 1 */
    const DLTensor *attention_post_norm_bias; /**< optional, of LayerNorm */
    const DLTensor *ffn_post_norm;            /**< optional, as 1 */
    const DLTensor *ffn_post_norm_bias;       /**< optional, of LayerNorm */
    /** Where the block is to be: all zero: where the tensors and packed matrices are; else that of a CUDA device, to which tensors in the memory
     *  of the process are copied. */
    DLDevice device;
    halyard_quantization quantization; /**< of the matrices that are tensors; for processors */
    halyard_block_codes codes;         /**< matrices that are quantized already */
    halyard_block_packed packed;       /**< matrices that are packed already; borrowed */
} halyard_block_weights;

/** A block: constant after it is made, so that any number of threads may run it, each with a cache of its own. */
typedef struct halyard_block halyard_block;

/** Packs the weights. On a device it waits for what it has put into the context's stream. */
HALYARD_API halyard_status halyard_block_create(const halyard_context *context, const halyard_block_config *config,
                                                const halyard_block_weights *weights, halyard_block **block);
/** Gives the block other numbers, for training, whose parameters change with every step: packs the matrices again where they are, and
 *  converts the vectors, with the bits of making it anew. Nothing is allocated but scratch of the context, for q, k and v together if they
 *  come as three tensors. All matrices come as tensors, of the dtype that they had, in any layout, and the same vectors are there; `device`
 *  and `quantization` do not count. No call may use the block meanwhile. A call that is refused changes nothing; of one that finds no memory
 *  for scratch the numbers are those of either. Refused with HALYARD_UNSUPPORTED: blocks on CUDA devices, and with matrices that came
 *  as codes or packed, or were quantized. */
HALYARD_API halyard_status halyard_block_update(const halyard_context *context, halyard_block *block,
                                                const halyard_block_weights *weights);
/** Frees it; null is allowed. No call that uses it may be running. */
HALYARD_API void halyard_block_destroy(halyard_block *block);
/** What it was made with, with the zeros filled in. */
HALYARD_API halyard_status halyard_block_get_config(const halyard_block *block, halyard_block_config *config);
/** Bytes of the weights that it packed, biases and tables; 0 if `block` is null. The table of angles counts for each block, though
 *  those with equal options share one. */
HALYARD_API int64_t halyard_block_bytes(const halyard_block *block);

/** y = block(x). x, y: [T, hidden_size] or [batch, T, hidden_size], one dtype, where the block is, as is the cache; y may
 *  be x.
 *  cache: null, and the T tokens are the whole sequence; or a cache with the block's kv heads and head_dim, to whose
 *  `layer` the tokens' keys and values are appended (not if the call fails). sequences: batch distinct indices, or null
 *  for 0, 1, ... */
HALYARD_API halyard_status halyard_block_forward(const halyard_context *context, const halyard_block *block,
                                                 const DLTensor *x, halyard_kv_cache *cache, int64_t layer,
                                                 const int64_t *sequences, DLTensor *y);

/** Where halyard_block_backward puts the gradients of a block's parameters: each field that of the parameter of its name in
 *  halyard_block_weights, f32 with its shape. Null for one that nobody wants. q, k and v come as three or as one, however the block was
 *  made. */
typedef struct halyard_block_gradients {
    halyard_weight_layout layout;       /**< of the matrices */
    int accumulate;                     /**< not 0: added to what is there */
    DLTensor *q_proj;                   /**< these three, or qkv_proj */
    DLTensor *k_proj;                   /**< num_key_value_heads head_dim outputs */
    DLTensor *v_proj;                   /**< num_key_value_heads head_dim outputs */
    DLTensor *qkv_proj;                 /**< one matrix of their outputs one after another */
    DLTensor *o_proj;                   /**< the output projection of attention */
    DLTensor *q_proj_bias;              /**< the block must have biases of q, k or v */
    DLTensor *k_proj_bias;              /**< likewise */
    DLTensor *v_proj_bias;              /**< likewise */
    DLTensor *qkv_proj_bias;            /**< those of q, k and v one after another */
    DLTensor *o_proj_bias;              /**< the block must have it, as all that follow but for matrices */
    DLTensor *q_norm;                   /**< [head_dim] */
    DLTensor *k_norm;                   /**< [head_dim] */
    DLTensor *gate_proj;                /**< of gated_mlp */
    DLTensor *up_proj;                  /**< intermediate_size outputs */
    DLTensor *down_proj;                /**< hidden_size outputs */
    DLTensor *gate_proj_bias;           /**< [intermediate_size] */
    DLTensor *up_proj_bias;             /**< [intermediate_size] */
    DLTensor *down_proj_bias;           /**< [hidden_size] */
    DLTensor *attention_norm;           /**< [hidden_size], as those that follow */
    DLTensor *attention_norm_bias;      /**< of LayerNorm */
    DLTensor *ffn_norm;                 /**< the norm of the feed-forward network */
    DLTensor *ffn_norm_bias;            /**< of LayerNorm */
    DLTensor *attention_post_norm;      /**< of HALYARD_SANDWICH_NORM and HALYARD_DOUBLE_NORM */
    DLTensor *attention_post_norm_bias; /**< of LayerNorm */
    DLTensor *ffn_post_norm;            /**< of HALYARD_SANDWICH_NORM and HALYARD_DOUBLE_NORM */
    DLTensor *ffn_post_norm_bias;       /**< of LayerNorm */
} halyard_block_gradients;

/** Bytes that halyard_block_forward_saving saves of batch sequences of so many tokens: 4 for each value of q, k, v and attention's result,
 *  of its heads' log-sum-exp, of what the feed-forward network gets and of its sums before the activation; and of what goes through the
 *  norms of q and k and of sublayers' outputs. Each is rounded up to 64 bytes. */
HALYARD_API halyard_status halyard_block_saved_size(const halyard_block *block, int64_t batch, int64_t tokens,
                                                    int64_t *bytes);
/** y = block(x) of whole sequences, with the bits of halyard_block_forward, which saves what halyard_block_backward needs besides x.
 *  x, y: f32 [T, hidden_size] or [batch, T, hidden_size]; y overlaps nothing. saved: `bytes` bytes, aligned to 64, at least
 *  halyard_block_saved_size. For blocks on processors whose matrices are f32, with q, k and v as tensors or as one matrix; gated_mlp with
 *  an activation that has a gated unit (no relu2, gelu_sigmoid, tanh, exp). */
HALYARD_API halyard_status halyard_block_forward_saving(const halyard_context *context, const halyard_block *block,
                                                        const DLTensor *x, void *saved, int64_t bytes, DLTensor *y);
/** The gradients of a block, from x and what the forward call saved of it, and dy, the gradient of y, f32 with the shape of x. dx, of that
 *  shape, may be dy; else nothing that is written may overlap anything. Each gradient is what halyard_linear_backward,
 *  halyard_attention_backward, halyard_ffn_backward and the norms' functions make of it, so bits depend neither on the threads nor on
 *  the instruction set. Calls that accumulate, each with whole sequences that have a multiple of 512 tokens together, make the bits of one
 *  call with all of them. */
HALYARD_API halyard_status halyard_block_backward(const halyard_context *context, const halyard_block *block,
                                                  const DLTensor *x, const void *saved, int64_t bytes,
                                                  const DLTensor *dy, const halyard_block_gradients *gradients,
                                                  DLTensor *dx);

/** @} */

/** @defgroup stacks Stacks
 *  @{ */

/** What a stack has besides its blocks. */
typedef struct halyard_stack_config {
    int64_t vocab_size;         /**< rows of the embedding */
    int64_t hidden_size;        /**< features of a token */
    float embedding_multiplier; /**< tokens' embeddings are multiplied by it (Gemma: sqrt(hidden_size)); finite; 0: 1 */
    halyard_norm norm;          /**< the last one; HALYARD_NORM_NONE for Post-LN */
    float rms_norm_eps;         /**< finite, >= 0 */
    unsigned norm_flags;        /**< HALYARD_RMS_... */
    float final_logit_softcapping; /**< 0: none; else 1e-30 to 1e30 */
    halyard_norm embed_norm;       /**< of the embedding, with the same eps and flags: BERT; HALYARD_NORM_NONE: none */
    int no_lm_head;                /**< not 0: no output projection, for halyard_stack_hidden_states alone */
} halyard_stack_config;

/** All where the blocks are or, of blocks on a device, all in the memory of the process: they are copied then, and not
 *  needed afterwards. */
typedef struct halyard_stack_weights {
    /** [vocab_size, hidden_size], any dtype and pitch; or embed_tokens_codes. Not copied where the blocks are: must outlive the stack. */
    const DLTensor *embed_tokens;
    /** Null or [max positions, hidden_size]: learned positions, added. The same. */
    const DLTensor *embed_positions;
    /** Null or [kinds of tokens, hidden_size]: added besides, BERT's token_type_embeddings. The same. */
    const DLTensor *embed_types;
    const DLTensor *embed_norm;      /**< [hidden_size], optional: the weight of the embedding's norm */
    const DLTensor *embed_norm_bias; /**< [hidden_size], optional: its bias, of LayerNorm */
    const DLTensor *norm;            /**< [hidden_size], optional: the weight of the last norm */
    const DLTensor *norm_bias;       /**< [hidden_size], optional: its bias, of LayerNorm */
    /** [vocab_size, hidden_size]; packed. Without it or one of lm_head_codes and lm_head_packed: embed_tokens (tied), its codes
     *  where that comes so. None of them with no_lm_head. */
    const DLTensor *lm_head;
    halyard_quantization quantization; /**< of lm_head, or of what is packed of embed_tokens; for processors */
    /** In place of lm_head: packed as halyard_weights_pack_codes does, and not needed afterwards; for processors. */
    const halyard_codes *lm_head_codes;
    /** In place of lm_head: borrowed. It lies where the blocks are, and must outlive the stack. */
    const halyard_weights *lm_head_packed;
    /** In place of embed_tokens, in a format of GGUF, for processors: rows are dequantized when their tokens are looked up, as
     *  halyard_dequantize does. What `matrix` points to is not copied and must outlive the stack. */
    const halyard_codes *embed_tokens_codes;
} halyard_stack_weights;

/** A stack: constant after it is made, as a block is. */
typedef struct halyard_stack halyard_stack;

/** Makes a stack and packs lm_head. blocks: n_layers of them, one hidden_size, in one place, in order; not copied,
 *  must outlive the stack. */
HALYARD_API halyard_status halyard_stack_create(const halyard_context *context, const halyard_stack_config *config,
                                                const halyard_stack_weights *weights,
                                                const halyard_block *const *blocks, int64_t n_layers,
                                                halyard_stack **stack);
/** Frees it, not its blocks; null is allowed. No call that uses it may be running. */
HALYARD_API void halyard_stack_destroy(halyard_stack *stack);
/** What it was made with, with the zeros filled in. */
HALYARD_API halyard_status halyard_stack_get_config(const halyard_stack *stack, halyard_stack_config *config);

/** Sees the residual stream, f32 [batch, T, hidden_size]: layer 0 is the embedding, layer i the output of block i - 1,
 *  and layer n_layers + 1 the output of the last norm. With a long prompt it is called for each part of it: first_token
 *  says where in the call's tokens the part begins. The tensor is valid during the call. On a device it lies there, in the
 *  dtype of the stream, and is complete when the work in the context's stream is: a copy belongs into that stream. */
typedef void (*halyard_hidden_state_observer)(void *user, int64_t layer, int64_t first_token, const DLTensor *hidden);

/** What a call of a stack does besides. */
typedef struct halyard_stack_options {
    int all_logits;                         /**< not 0: logits of every token; 0: of the last one of each sequence */
    halyard_hidden_state_observer observer; /**< null: none */
    void *user;                             /**< the observer's first argument */
    /** Rows of embed_types, as input_ids in shape and kind; null: all 0. In the memory of the process. */
    const DLTensor *token_types;
} halyard_stack_options;

/** logits = lm_head(norm(blocks(embedding(input_ids)))), where embedding = embed_norm(embedding_multiplier embed_tokens[id] +
 *  embed_positions[position] + embed_types[type]).
 *  input_ids: [T] or [batch, T] with any strides, int32 or int64, each in [0, vocab_size); logits: f32, f16 or bf16, shape of
 *  input_ids (or, without all_logits, input_ids' shape without T) with vocab_size appended: [vocab], [batch, vocab],
 *  [T, vocab] or [batch, T, vocab]. Without all_logits there must be a token in each sequence.
 *  cache, sequences: as for halyard_block_forward, the cache having n_layers layers or more, all filled equally far.
 *  options: null for all zero. With a cache, long prompts go through the stack in parts of at most 512 tokens of each
 *  sequence, which on a processor changes no bit. Logits in 16 bits with a soft cap are made in f32 first, in scratch
 *  memory.
 *  On a device the cache is there; input_ids is in the memory of the process, and read before the call returns. logits is on
 *  the device, or in the memory of the process: then the call waits for them, and cannot be captured in a graph. */
HALYARD_API halyard_status halyard_stack_forward(const halyard_context *context, const halyard_stack *stack,
                                                 const DLTensor *input_ids, halyard_kv_cache *cache,
                                                 const int64_t *sequences, const halyard_stack_options *options,
                                                 DLTensor *logits);

/** hidden = norm(blocks(embedding(input_ids))), of every token: what transformers calls last_hidden_state. hidden: f32, f16
 *  or bf16, [T, hidden_size] or [batch, T, hidden_size], where the stack is or in the memory of the process. All else as for
 *  halyard_stack_forward; all_logits changes nothing. Blocks without `causal` make an encoder of the stack. */
HALYARD_API halyard_status halyard_stack_hidden_states(const halyard_context *context, const halyard_stack *stack,
                                                       const DLTensor *input_ids, halyard_kv_cache *cache,
                                                       const int64_t *sequences, const halyard_stack_options *options,
                                                       DLTensor *hidden);

/** Where halyard_stack_backward puts the gradients of a stack's parameters: each field that of the parameter of its name in
 *  halyard_stack_weights, f32 with its shape. Null for one that nobody wants. */
typedef struct halyard_stack_gradients {
    int accumulate;            /**< not 0: added to what is there, but for the blocks', which say it themselves */
    DLTensor *embed_tokens;    /**< where lm_head is embed_tokens, that gradient too, which is written first */
    DLTensor *embed_positions; /**< positions that no token has get 0 */
    DLTensor *embed_types;     /**< the stack must have it, as all that follow */
    DLTensor *embed_norm;      /**< [hidden_size] */
    DLTensor *embed_norm_bias; /**< [hidden_size] */
    DLTensor *norm;            /**< [hidden_size] */
    DLTensor *norm_bias;       /**< [hidden_size] */
    DLTensor *lm_head;         /**< [vocab_size, hidden_size]: of one of its own */
    const halyard_block_gradients *blocks; /**< null, or as many as the stack has blocks */
} halyard_stack_gradients;

/** Bytes that halyard_stack_forward_saving saves of batch sequences of so many tokens: what its blocks save, and 4 for each value that goes
 *  into a block, into the last norm, and into those of an embedding's norm and of soft caps. */
HALYARD_API halyard_status halyard_stack_saved_size(const halyard_stack *stack, int64_t batch, int64_t tokens,
                                                    int64_t *bytes);
/** The logits of all tokens of whole sequences or, of a stack without an output projection, the hidden states, with the bits of
 *  halyard_stack_forward (all_logits) and halyard_stack_hidden_states; and what halyard_stack_backward needs besides the ids.
 *  input_ids: [T] or [batch, T], as there; token_types: null, or such ids; result: f32 [(batch,) T, vocab_size] or
 *  [(batch,) T, hidden_size]; saved: `bytes` bytes, aligned to 64, at least halyard_stack_saved_size. Nothing that is written may overlap
 *  anything. For stacks on processors whose blocks have gradients, with lm_head in f32; not of embed_tokens_codes. */
HALYARD_API halyard_status halyard_stack_forward_saving(const halyard_context *context, const halyard_stack *stack,
                                                        const DLTensor *input_ids, const DLTensor *token_types,
                                                        void *saved, int64_t bytes, DLTensor *result);
/** The gradients of all parameters, from the ids, what the forward call saved, and dresult, the gradient of its result, f32 of that shape.
 *  Each is that of its own function: halyard_block_backward, halyard_linear_backward, halyard_embedding_backward, the norms'. Bits
 *  depend neither on the threads nor on the instruction set. */
HALYARD_API halyard_status halyard_stack_backward(const halyard_context *context, const halyard_stack *stack,
                                                  const DLTensor *input_ids, const DLTensor *token_types,
                                                  const void *saved, int64_t bytes, const DLTensor *dresult,
                                                  const halyard_stack_gradients *gradients);
/** Gives the stack other numbers, besides its blocks': packs lm_head again, which is embed_tokens where that is tied, and converts the
 *  vectors of norms, as halyard_block_update does. Tables are read where they are, so embed_tokens is the table that the stack was made
 *  with, with other numbers in it. Refused likewise: stacks on CUDA devices, and with matrices that came as codes or packed, or were
 *  quantized. */
HALYARD_API halyard_status halyard_stack_update(const halyard_context *context, halyard_stack *stack,
                                                const halyard_stack_weights *weights);

/** @} */

#ifdef __cplusplus
}
#endif

#endif
