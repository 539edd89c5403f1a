/** @file
 * block.hpp: the C++17 interface of block.h, in the manner of halyard.hpp.
 *
 *     halyard::BlockConfig config = halyard::BlockConfig::preset("llama");
 *     config.hidden_size = 4096;  // and the other sizes
 *     const halyard::Block block(config, weights);
 *     block.forward({x, {tokens, 4096}}, {y, {tokens, 4096}});
 */
#ifndef HALYARD_BLOCK_HPP
#define HALYARD_BLOCK_HPP

#include <cstdint>
#include <utility>
#include <vector>

#include "attention.hpp"
#include "block.h"

namespace halyard {

/* ---- Blocks -------------------------------------------------------------------------------------------------- */

/// Where the norms of a block are; Sub is attention, then the feed-forward network.
enum class NormPlacement {
    pre = HALYARD_PRE_NORM,                      ///< x + Sub(N(x)): GPT-2, Llama
    post = HALYARD_POST_NORM,                    ///< N(x + Sub(x)): Vaswani et al. 2017
    post_sublayer = HALYARD_POST_SUBLAYER_NORM,  ///< x + N(Sub(x)): OLMo 2
    sandwich = HALYARD_SANDWICH_NORM,            ///< x + N'(Sub(N(x))): Gemma 2
    double_norm = HALYARD_DOUBLE_NORM,           ///< N'(x + Sub(N(x))): Pre-LN with a norm of each sum
};

/// Fields are named as in the configuration files of Hugging Face transformers, where those have them.
struct BlockConfig {
    std::int64_t hidden_size = 0;          ///< features of a token
    std::int64_t intermediate_size = 0;    ///< width of the feed-forward network
    std::int64_t num_attention_heads = 0;  ///< heads of q
    std::int64_t num_key_value_heads = 0;  ///< divides num_attention_heads; 0: as many
    std::int64_t head_dim = 0;             ///< 0: hidden_size / num_attention_heads

    Norm norm = Norm::rms;                              ///< their kind
    NormPlacement norm_placement = NormPlacement::pre;  ///< where they are
    float rms_norm_eps = 1e-6f;                         ///< of every norm, also of LayerNorms
    unsigned norm_flags = 0;                            ///< HALYARD_RMS_..., of RMSNorms

    Activation hidden_act = Activation::silu;  ///< of the feed-forward network
    float swish_beta = 1.0f;                   ///< of Activation::swish
    bool gated_mlp = true;                     ///< down(act(gate x) * up x) instead of down(act(up x))

    bool causal = true;                        ///< needed where there is a cache
    std::int64_t sliding_window = 0;           ///< 0: none
    float query_pre_attn_scalar = 0.0f;        ///< scores are divided by its root; 0: head_dim
    float attn_logit_softcapping = 0.0f;       ///< 0: none
    RopeOptions rope = no_rope();              ///< rope_theta 0: none; head_dim and max_positions may be 0
    std::int64_t max_position_embeddings = 0;  ///< bound of positions where there is a rotary embedding

    /// What a family of models has in common, without its sizes: one of `presets()`.
    static BlockConfig preset(const char *name) {
        halyard_block_config c{};
        check(halyard_block_config_preset(name, &c));
        return BlockConfig(c);
    }
    /// Their names.
    static std::vector<const char *> presets() {
        std::vector<const char *> names;
        for (const char *const *name = halyard_block_presets(); *name != nullptr; ++name) {
            names.push_back(*name);
        }
        return names;
    }

    BlockConfig() = default;
    /// From that of the C functions.
    explicit BlockConfig(const halyard_block_config &c)
        : hidden_size(c.hidden_size), intermediate_size(c.intermediate_size),
          num_attention_heads(c.num_attention_heads), num_key_value_heads(c.num_key_value_heads), head_dim(c.head_dim),
          norm(static_cast<Norm>(c.norm)), norm_placement(static_cast<NormPlacement>(c.norm_placement)),
          rms_norm_eps(c.rms_norm_eps), norm_flags(c.norm_flags), hidden_act(static_cast<Activation>(c.hidden_act)),
          swish_beta(c.swish_beta), gated_mlp(c.gated_mlp != 0), causal(c.causal != 0),
          sliding_window(c.sliding_window), query_pre_attn_scalar(c.query_pre_attn_scalar),
          attn_logit_softcapping(c.attn_logit_softcapping), max_position_embeddings(c.max_position_embeddings) {
        rope.head_dim = c.rope.head_dim;
        rope.rotary_dim = c.rope.rotary_dim;
        rope.max_positions = c.rope.max_positions;
        rope.rope_theta = c.rope.rope_theta;
        rope.interleaved = c.rope.interleaved != 0;
        rope.scaling = static_cast<RopeScaling>(c.rope.scaling);
        rope.factor = c.rope.factor;
        rope.low_freq_factor = c.rope.low_freq_factor;
        rope.high_freq_factor = c.rope.high_freq_factor;
        rope.original_max_position_embeddings = c.rope.original_max_position_embeddings;
    }

    /// As the C functions take it.
    halyard_block_config get() const noexcept {
        halyard_block_config c{};
        c.hidden_size = hidden_size;
        c.intermediate_size = intermediate_size;
        c.num_attention_heads = num_attention_heads;
        c.num_key_value_heads = num_key_value_heads;
        c.head_dim = head_dim;
        c.norm = static_cast<halyard_norm>(norm);
        c.norm_placement = static_cast<halyard_norm_placement>(norm_placement);
        c.rms_norm_eps = rms_norm_eps;
        c.norm_flags = norm_flags;
        c.hidden_act = static_cast<halyard_activation>(hidden_act);
        c.swish_beta = swish_beta;
        c.gated_mlp = gated_mlp ? 1 : 0;
        c.causal = causal ? 1 : 0;
        c.sliding_window = sliding_window;
        c.query_pre_attn_scalar = query_pre_attn_scalar;
        c.attn_logit_softcapping = attn_logit_softcapping;
        c.rope.head_dim = rope.head_dim;
        c.rope.rotary_dim = rope.rotary_dim;
        c.rope.max_positions = rope.max_positions;
        c.rope.rope_theta = rope.rope_theta;
        c.rope.interleaved = rope.interleaved ? 1 : 0;
        c.rope.scaling = static_cast<halyard_rope_scaling>(rope.scaling);
        c.rope.factor = rope.factor;
        c.rope.low_freq_factor = rope.low_freq_factor;
        c.rope.high_freq_factor = rope.high_freq_factor;
        c.rope.original_max_position_embeddings = rope.original_max_position_embeddings;
        c.max_position_embeddings = max_position_embeddings;
        return c;
    }

private:
    static RopeOptions no_rope() noexcept {
        RopeOptions rope;
        rope.rope_theta = 0;
        return rope;
    }
};

/// Matrices of a block that are quantized already: packed when it is made, and not needed afterwards. Null: none.
struct BlockCodes {
    const Codes *q_proj = nullptr;     ///< these three, or qkv_proj
    const Codes *k_proj = nullptr;     ///< num_key_value_heads head_dim outputs
    const Codes *v_proj = nullptr;     ///< num_key_value_heads head_dim outputs
    const Codes *qkv_proj = nullptr;   ///< one matrix of their outputs one after another
    const Codes *o_proj = nullptr;     ///< the output projection of attention
    const Codes *gate_proj = nullptr;  ///< of gated_mlp; codes of one format with up_proj
    const Codes *up_proj = nullptr;    ///< intermediate_size outputs
    const Codes *down_proj = nullptr;  ///< hidden_size outputs
};

/// Matrices of a block that are packed already: used where they are, they must outlive the block. Null: none.
struct BlockPacked {
    const Weights *q_proj = nullptr;     ///< these three, or qkv_proj
    const Weights *k_proj = nullptr;     ///< num_key_value_heads head_dim outputs
    const Weights *v_proj = nullptr;     ///< num_key_value_heads head_dim outputs
    const Weights *qkv_proj = nullptr;   ///< one matrix of their outputs one after another
    const Weights *o_proj = nullptr;     ///< the output projection of attention
    const Weights *up_proj = nullptr;    ///< of gated_mlp gate and up, packed as a gated matrix
    const Weights *down_proj = nullptr;  ///< hidden_size outputs
};

/// What a block is made of; tensors are not needed after it is made. Each matrix comes in one way: as a tensor, in `codes` or in
/// `packed`. Tensors of matrices are as `layout` says, all of one element type; those that a configuration does not have stay empty, and
/// all vectors may.
struct BlockWeights {
    WeightLayout layout = WeightLayout::out_in;  ///< of the matrices
    ConstTensor q_proj;                          ///< these three, or qkv_proj
    ConstTensor k_proj;                          ///< num_key_value_heads head_dim outputs
    ConstTensor v_proj;                          ///< num_key_value_heads head_dim outputs
    ConstTensor qkv_proj;                        ///< one matrix of their outputs one after another
    ConstTensor o_proj;                          ///< the output projection of attention
    ConstTensor q_proj_bias;                     ///< optional, as all biases
    ConstTensor k_proj_bias;                     ///< optional
    ConstTensor v_proj_bias;                     ///< optional
    ConstTensor qkv_proj_bias;                   ///< optional
    ConstTensor o_proj_bias;                     ///< optional
    ConstTensor q_norm;                          ///< [head_dim]: RMSNorm of each head of q
    ConstTensor k_norm;                          ///< [head_dim]: the same of k
    ConstTensor gate_proj;                       ///< of gated_mlp
    ConstTensor up_proj;                         ///< intermediate_size outputs
    ConstTensor down_proj;                       ///< hidden_size outputs
    ConstTensor gate_proj_bias;                  ///< optional, of gated_mlp
    ConstTensor up_proj_bias;                    ///< optional
    ConstTensor down_proj_bias;                  ///< optional
    ConstTensor attention_norm;                  ///< the norm of attention
    ConstTensor attention_norm_bias;             ///< of LayerNorm
    ConstTensor ffn_norm;                        ///< the norm of the feed-forward network
    ConstTensor ffn_norm_bias;                   ///< of LayerNorm
    ConstTensor attention_post_norm;             ///< N' of NormPlacement::sandwich and double_norm
    ConstTensor attention_post_norm_bias;        ///< of LayerNorm
    ConstTensor ffn_post_norm;                   ///< N' of the feed-forward network
    ConstTensor ffn_post_norm_bias;              ///< of LayerNorm
    DLDevice device{};                           ///< where the block is to be, if not where the tensors are
    halyard_quantization quantization{};         ///< of the matrices that are tensors
    BlockCodes codes{};                          ///< matrices that are quantized already
    BlockPacked packed{};                        ///< matrices that are packed already; borrowed
};

/// Where `Block::backward` puts the gradients of a block's parameters: each that of the parameter of its name in BlockWeights, f32 with
/// its shape. Those that nobody wants stay empty. q, k and v come as three or as one, however the block was made.
struct BlockGradients {
    WeightLayout layout = WeightLayout::out_in;  ///< of the matrices
    bool accumulate = false;                     ///< added to what is there
    Tensor q_proj;                               ///< these three, or qkv_proj
    Tensor k_proj;                               ///< num_key_value_heads head_dim outputs
    Tensor v_proj;                               ///< num_key_value_heads head_dim outputs
    Tensor qkv_proj;                             ///< one matrix of their outputs one after another
    Tensor o_proj;                               ///< the output projection of attention
    Tensor q_proj_bias;                          ///< the block must have it, as all vectors that follow
    Tensor k_proj_bias;                          ///< likewise
    Tensor v_proj_bias;                          ///< likewise
    Tensor qkv_proj_bias;                        ///< those of q, k and v one after another
    Tensor o_proj_bias;                          ///< [hidden_size]
    Tensor q_norm;                               ///< [head_dim]
    Tensor k_norm;                               ///< [head_dim]
    Tensor gate_proj;                            ///< of gated_mlp
    Tensor up_proj;                              ///< intermediate_size outputs
    Tensor down_proj;                            ///< hidden_size outputs
    Tensor gate_proj_bias;                       ///< [intermediate_size]
    Tensor up_proj_bias;                         ///< [intermediate_size]
    Tensor down_proj_bias;                       ///< [hidden_size]
    Tensor attention_norm;                       ///< [hidden_size], as those that follow
    Tensor attention_norm_bias;                  ///< of LayerNorm
    Tensor ffn_norm;                             ///< the norm of the feed-forward network
    Tensor ffn_norm_bias;                        ///< of LayerNorm
    Tensor attention_post_norm;                  ///< of NormPlacement::sandwich and double_norm
    Tensor attention_post_norm_bias;             ///< of LayerNorm
    Tensor ffn_post_norm;                        ///< of NormPlacement::sandwich and double_norm
    Tensor ffn_post_norm_bias;                   ///< of LayerNorm

    /// As the C functions take them, which keep nothing of them. Valid as long as these.
    halyard_block_gradients get() const {
        halyard_block_gradients c{};
        c.layout = static_cast<halyard_weight_layout>(layout);
        c.accumulate = accumulate ? 1 : 0;
        c.q_proj = q_proj.get("q_proj");
        c.k_proj = k_proj.get("k_proj");
        c.v_proj = v_proj.get("v_proj");
        c.qkv_proj = qkv_proj.get("qkv_proj");
        c.o_proj = o_proj.get("o_proj");
        c.q_proj_bias = q_proj_bias.get("q_proj_bias");
        c.k_proj_bias = k_proj_bias.get("k_proj_bias");
        c.v_proj_bias = v_proj_bias.get("v_proj_bias");
        c.qkv_proj_bias = qkv_proj_bias.get("qkv_proj_bias");
        c.o_proj_bias = o_proj_bias.get("o_proj_bias");
        c.q_norm = q_norm.get("q_norm");
        c.k_norm = k_norm.get("k_norm");
        c.gate_proj = gate_proj.get("gate_proj");
        c.up_proj = up_proj.get("up_proj");
        c.down_proj = down_proj.get("down_proj");
        c.gate_proj_bias = gate_proj_bias.get("gate_proj_bias");
        c.up_proj_bias = up_proj_bias.get("up_proj_bias");
        c.down_proj_bias = down_proj_bias.get("down_proj_bias");
        c.attention_norm = attention_norm.get("attention_norm");
        c.attention_norm_bias = attention_norm_bias.get("attention_norm_bias");
        c.ffn_norm = ffn_norm.get("ffn_norm");
        c.ffn_norm_bias = ffn_norm_bias.get("ffn_norm_bias");
        c.attention_post_norm = attention_post_norm.get("attention_post_norm");
        c.attention_post_norm_bias = attention_post_norm_bias.get("attention_post_norm_bias");
        c.ffn_post_norm = ffn_post_norm.get("ffn_post_norm");
        c.ffn_post_norm_bias = ffn_post_norm_bias.get("ffn_post_norm_bias");
        return c;
    }
};

namespace detail {

/// The indices of `sequences`, of which there must be one for each index of the batch of a tensor with so many axes.
inline const std::int64_t *indices_of(const Sequences &sequences, const DLTensor *t, int batched_rank) {
    const bool batched = t != nullptr && t->shape != nullptr && t->ndim == batched_rank;
    // Sequences knows tensors of heads.
    std::int64_t shape[Extents::max_rank] = {batched ? t->shape[0] : 1, 0, 0, 0};
    DLTensor heads{};
    heads.ndim = Extents::max_rank;
    heads.shape = shape;
    return sequences.get(heads);
}

/// Codes as the C functions take them.
class CodesPointer {
public:
    explicit CodesPointer(const Codes *codes)
        : given_(codes != nullptr), codes_(given_ ? c_codes(*codes) : halyard_codes{}) {}
    const halyard_codes *get() const noexcept { return given_ ? &codes_ : nullptr; }

private:
    bool given_;
    halyard_codes codes_;
};

inline const halyard_weights *c_weights(const Weights *weights) noexcept {
    return weights != nullptr ? weights->get() : nullptr;
}

}  // namespace detail

/// Attention and a feed-forward network with their norms and residuals. Move-only; may be used by any number of
/// threads, each with a cache of its own.
class Block {
public:
    /// None; calls refuse it.
    Block() noexcept = default;

    /// Packs the weights.
    Block(const BlockConfig &config, const BlockWeights &weights, const halyard_context *context = nullptr) {
        const halyard_block_config c = config.get();
        halyard_block *block = nullptr;
        with_c_weights(weights, [&](const halyard_block_weights &tensors) {
            return halyard_block_create(context, &c, &tensors, &block);
        });
        block_.reset(block);
    }

    /// Gives it other numbers: tensors of the form that it was made with. No call may use it meanwhile.
    void update(const BlockWeights &weights, const halyard_context *context = nullptr) {
        with_c_weights(weights, [&](const halyard_block_weights &tensors) {
            return halyard_block_update(context, block_.get(), &tensors);
        });
    }

    /// What it was made with, with the zeros filled in.
    BlockConfig config() const {
        halyard_block_config c{};
        check(halyard_block_get_config(get(), &c));
        return BlockConfig(c);
    }
    /// Bytes of the weights that it packed, biases and tables.
    std::int64_t bytes() const noexcept { return halyard_block_bytes(get()); }

    /// y = block(x) for whole sequences: [T, hidden_size] or [batch, T, hidden_size]; y may be x.
    void forward(const ConstTensor &x, const Tensor &y, const halyard_context *context = nullptr) const {
        check(halyard_block_forward(context, get(), x.get("x"), nullptr, 0, nullptr, y.get("y")));
    }
    /// y = block(x) for tokens that continue sequences of a layer of a cache, to which their keys and values are appended.
    void forward(const ConstTensor &x, KvCache &cache, std::int64_t layer, const Sequences &sequences, const Tensor &y,
                 const halyard_context *context = nullptr) const {
        require(cache);
        check(halyard_block_forward(context, get(), x.get("x"), cache.get(), layer,
                                    detail::indices_of(sequences, x.get("x"), 3), y.get("y")));
    }
    /// y = block(x) for tokens that continue sequences 0, 1, ... of a layer of a cache.
    void forward(const ConstTensor &x, KvCache &cache, std::int64_t layer, const Tensor &y,
                 const halyard_context *context = nullptr) const {
        forward(x, cache, layer, Sequences(), y, context);
    }

    /// Bytes that `forward_saving` saves of so many sequences.
    std::int64_t saved_bytes(std::int64_t batch, std::int64_t tokens) const {
        std::int64_t bytes = 0;
        check(halyard_block_saved_size(get(), batch, tokens, &bytes));
        return bytes;
    }
    /// y = block(x) of whole sequences in f32, which saves in `bytes` bytes, aligned to 64, what `backward` needs besides x.
    void forward_saving(const ConstTensor &x, void *saved, std::int64_t bytes, const Tensor &y,
                        const halyard_context *context = nullptr) const {
        check(halyard_block_forward_saving(context, get(), x.get("x"), saved, bytes, y.get("y")));
    }
    /// The gradients, from x, what was saved of it, and dy; dx may be dy.
    void backward(const ConstTensor &x, const void *saved, std::int64_t bytes, const ConstTensor &dy,
                  const BlockGradients &gradients, const Tensor &dx, const halyard_context *context = nullptr) const {
        const halyard_block_gradients c = gradients.get();
        check(halyard_block_backward(context, get(), x.get("x"), saved, bytes, dy.get("dy"), &c, dx.get("dx")));
    }

    /// Whether there is one.
    explicit operator bool() const noexcept { return block_ != nullptr; }
    /// The argument that a C function takes.
    const halyard_block *get() const noexcept { return block_.get(); }

private:
    friend class Stack;

    /// Calls a C function with the weights as it takes them.
    template<typename Call>
    static void with_c_weights(const BlockWeights &w, const Call &call) {
        halyard_block_weights tensors{};
        tensors.layout = static_cast<halyard_weight_layout>(w.layout);
        tensors.q_proj = w.q_proj.get("q_proj");
        tensors.k_proj = w.k_proj.get("k_proj");
        tensors.v_proj = w.v_proj.get("v_proj");
        tensors.qkv_proj = w.qkv_proj.get("qkv_proj");
        tensors.o_proj = w.o_proj.get("o_proj");
        tensors.q_proj_bias = w.q_proj_bias.get("q_proj_bias");
        tensors.k_proj_bias = w.k_proj_bias.get("k_proj_bias");
        tensors.v_proj_bias = w.v_proj_bias.get("v_proj_bias");
        tensors.qkv_proj_bias = w.qkv_proj_bias.get("qkv_proj_bias");
        tensors.o_proj_bias = w.o_proj_bias.get("o_proj_bias");
        tensors.q_norm = w.q_norm.get("q_norm");
        tensors.k_norm = w.k_norm.get("k_norm");
        tensors.gate_proj = w.gate_proj.get("gate_proj");
        tensors.up_proj = w.up_proj.get("up_proj");
        tensors.down_proj = w.down_proj.get("down_proj");
        tensors.gate_proj_bias = w.gate_proj_bias.get("gate_proj_bias");
        tensors.up_proj_bias = w.up_proj_bias.get("up_proj_bias");
        tensors.down_proj_bias = w.down_proj_bias.get("down_proj_bias");
        tensors.attention_norm = w.attention_norm.get("attention_norm");
        tensors.attention_norm_bias = w.attention_norm_bias.get("attention_norm_bias");
        tensors.ffn_norm = w.ffn_norm.get("ffn_norm");
        tensors.ffn_norm_bias = w.ffn_norm_bias.get("ffn_norm_bias");
        tensors.attention_post_norm = w.attention_post_norm.get("attention_post_norm");
        tensors.attention_post_norm_bias = w.attention_post_norm_bias.get("attention_post_norm_bias");
        tensors.ffn_post_norm = w.ffn_post_norm.get("ffn_post_norm");
        tensors.ffn_post_norm_bias = w.ffn_post_norm_bias.get("ffn_post_norm_bias");
        tensors.device = w.device;
        tensors.quantization = w.quantization;
        const detail::CodesPointer q(w.codes.q_proj), k(w.codes.k_proj), v(w.codes.v_proj), qkv(w.codes.qkv_proj),
            o(w.codes.o_proj), gate(w.codes.gate_proj), up(w.codes.up_proj), down(w.codes.down_proj);
        tensors.codes = {q.get(), k.get(), v.get(), qkv.get(), o.get(), gate.get(), up.get(), down.get()};
        tensors.packed = {detail::c_weights(w.packed.q_proj),   detail::c_weights(w.packed.k_proj),
                          detail::c_weights(w.packed.v_proj),   detail::c_weights(w.packed.qkv_proj),
                          detail::c_weights(w.packed.o_proj),   detail::c_weights(w.packed.up_proj),
                          detail::c_weights(w.packed.down_proj)};
        check(call(tensors));
    }

    /// To the C functions a null cache means whole sequences.
    static void require(const KvCache &cache) {
        if (!cache) {
            throw Error(HALYARD_INVALID_ARGUMENT, "halyard: the cache is empty");
        }
    }

    struct Destroy {
        void operator()(halyard_block *block) const noexcept { halyard_block_destroy(block); }
    };
    std::unique_ptr<halyard_block, Destroy> block_;
};

/* ---- Stacks -------------------------------------------------------------------------------------------------- */

/// What a stack has besides its blocks.
struct StackConfig {
    std::int64_t vocab_size = 0;           ///< rows of the embedding
    std::int64_t hidden_size = 0;          ///< features of a token
    float embedding_multiplier = 1.0f;     ///< tokens' embeddings are multiplied by it
    Norm norm = Norm::rms;                 ///< the last one; none for Post-LN
    float rms_norm_eps = 1e-6f;            ///< of that norm
    unsigned norm_flags = 0;               ///< HALYARD_RMS_...
    float final_logit_softcapping = 0.0f;  ///< 0: none
    Norm embed_norm = Norm::none;          ///< of the embedding, with the same eps and flags: BERT
    bool no_lm_head = false;               ///< no output projection: the stack gives hidden states alone
};

/// The tensors of a stack.
struct StackWeights {
    /// [vocab_size, hidden_size], any element type. Must outlive the stack, unless it is copied to the device of the blocks.
    ConstTensor embed_tokens;
    ConstTensor embed_positions;              ///< {}, or learned positions: [max positions, hidden_size]. The same
    ConstTensor embed_types;                  ///< {}, or [kinds of tokens, hidden_size]: added besides. The same
    ConstTensor embed_norm;                   ///< [hidden_size], optional: the weight of the embedding's norm
    ConstTensor embed_norm_bias;              ///< [hidden_size], optional: its bias
    ConstTensor norm;                         ///< [hidden_size], optional: the weight of the last norm
    ConstTensor norm_bias;                    ///< [hidden_size], optional: its bias
    ConstTensor lm_head;                      ///< [vocab_size, hidden_size]; in no way: embed_tokens
    halyard_quantization quantization{};      ///< of lm_head
    const Codes *lm_head_codes = nullptr;     ///< in place of lm_head
    const Weights *lm_head_packed = nullptr;  ///< in place of lm_head; must outlive the stack
    /// In place of embed_tokens, in a format of GGUF; its tensor must outlive the stack.
    const Codes *embed_tokens_codes = nullptr;
};

/// Where `Stack::backward` puts the gradients of a stack's parameters: each that of the parameter of its name in StackWeights, f32 with its
/// shape. Those that nobody wants stay empty.
struct StackGradients {
    bool accumulate = false;             ///< added to what is there, but for the blocks', which say it themselves
    Tensor embed_tokens;                 ///< where lm_head is embed_tokens, that gradient too
    Tensor embed_positions;              ///< positions that no token has get 0
    Tensor embed_types;                  ///< the stack must have it, as all that follow
    Tensor embed_norm;                   ///< [hidden_size]
    Tensor embed_norm_bias;              ///< [hidden_size]
    Tensor norm;                         ///< [hidden_size]
    Tensor norm_bias;                    ///< [hidden_size]
    Tensor lm_head;                      ///< [vocab_size, hidden_size], of one of its own
    std::vector<BlockGradients> blocks;  ///< none, or as many as the stack has blocks
};

/// Ids of tokens, int32 or int64: [T] or [batch, T].
using TokenIds = Positions;

/// Token embedding, blocks, the last norm and the output projection. Move-only; may be used by any number of threads,
/// each with a cache of its own.
class Stack {
public:
    /// None; calls refuse it.
    Stack() noexcept = default;

    /// blocks: a container of `Block`, in order; they must outlive the stack.
    template<class Blocks>
    Stack(const StackConfig &config, const StackWeights &weights, const Blocks &blocks,
          const halyard_context *context = nullptr) {
        halyard_stack_config c{};
        c.vocab_size = config.vocab_size;
        c.hidden_size = config.hidden_size;
        c.embedding_multiplier = config.embedding_multiplier;
        c.norm = static_cast<halyard_norm>(config.norm);
        c.rms_norm_eps = config.rms_norm_eps;
        c.norm_flags = config.norm_flags;
        c.final_logit_softcapping = config.final_logit_softcapping;
        c.embed_norm = static_cast<halyard_norm>(config.embed_norm);
        c.no_lm_head = config.no_lm_head ? 1 : 0;
        std::vector<const halyard_block *> layers;
        for (const Block &block : blocks) {
            layers.push_back(block.get());
        }
        halyard_stack *stack = nullptr;
        with_c_weights(weights, [&](const halyard_stack_weights &w) {
            return halyard_stack_create(context, &c, &w, layers.data(), static_cast<std::int64_t>(layers.size()),
                                        &stack);
        });
        stack_.reset(stack);
    }

    /// Gives it other numbers, besides its blocks': those of the form that it was made with, and the same embed_tokens.
    void update(const StackWeights &weights, const halyard_context *context = nullptr) {
        with_c_weights(weights,
                       [&](const halyard_stack_weights &w) { return halyard_stack_update(context, stack_.get(), &w); });
    }

    /// What it was made with.
    StackConfig config() const {
        halyard_stack_config c{};
        check(halyard_stack_get_config(get(), &c));
        StackConfig config;
        config.vocab_size = c.vocab_size;
        config.hidden_size = c.hidden_size;
        config.embedding_multiplier = c.embedding_multiplier;
        config.norm = static_cast<Norm>(c.norm);
        config.rms_norm_eps = c.rms_norm_eps;
        config.norm_flags = c.norm_flags;
        config.final_logit_softcapping = c.final_logit_softcapping;
        config.embed_norm = static_cast<Norm>(c.embed_norm);
        config.no_lm_head = c.no_lm_head != 0;
        return config;
    }

    /// Logits of the last token of whole sequences: [vocab_size] or [batch, vocab_size], any element type. Of a stack on a
    /// device they may be in the memory of the process: calls wait for them then.
    void forward(const TokenIds &input_ids, const Tensor &logits, const halyard_context *context = nullptr) const {
        check(halyard_stack_forward(context, get(), input_ids.get("input_ids"), nullptr, nullptr, nullptr,
                                    logits.get("logits")));
    }
    /// Logits as above, for tokens that continue sequences of a cache.
    void forward(const TokenIds &input_ids, KvCache &cache, const Sequences &sequences, const Tensor &logits,
                 const halyard_context *context = nullptr) const {
        call(input_ids, cache, sequences, nullptr, logits, context);
    }
    /// Logits as above, for tokens that continue sequences 0, 1, ... of a cache.
    void forward(const TokenIds &input_ids, KvCache &cache, const Tensor &logits,
                 const halyard_context *context = nullptr) const {
        call(input_ids, cache, Sequences(), nullptr, logits, context);
    }

    /// Logits of every token: [T, vocab_size] or [batch, T, vocab_size].
    void forward_all(const TokenIds &input_ids, const Tensor &logits, const halyard_context *context = nullptr) const {
        halyard_stack_options options{};
        options.all_logits = 1;
        check(halyard_stack_forward(context, get(), input_ids.get("input_ids"), nullptr, nullptr, &options,
                                    logits.get("logits")));
    }
    /// Logits of every token, as above, for tokens that continue sequences of a cache.
    void forward_all(const TokenIds &input_ids, KvCache &cache, const Sequences &sequences, const Tensor &logits,
                     const halyard_context *context = nullptr) const {
        halyard_stack_options options{};
        options.all_logits = 1;
        call(input_ids, cache, sequences, &options, logits, context);
    }

    /// What comes out of the last norm, of every token of whole sequences: [T, hidden_size] or [batch, T, hidden_size].
    /// token_types: rows of embed_types, of the shape of input_ids; {}: all 0.
    void hidden_states(const TokenIds &input_ids, const TokenIds &token_types, const Tensor &hidden,
                       const halyard_context *context = nullptr) const {
        halyard_stack_options options{};
        options.token_types = token_types.get("token_types");
        check(halyard_stack_hidden_states(context, get(), input_ids.get("input_ids"), nullptr, nullptr, &options,
                                          hidden.get("hidden")));
    }

    /// The logits of `forward_all` for whole sequences, and the residual stream on the way: calls
    /// `observer(layer, first_token, hidden)` with hidden f32 [batch, T, hidden_size], valid during that call. Layer 0
    /// is the embedding, layer i the output of block i - 1, the layer after the last block the output of the last norm.
    /// The observer may not throw.
    template<class Observer>
    void observe(const TokenIds &input_ids, Observer &&observer, const Tensor &logits,
                 const halyard_context *context = nullptr) const {
        using Callable = std::remove_reference_t<Observer>;
        halyard_stack_options options{};
        options.all_logits = 1;
        options.observer = [](void *user, std::int64_t layer, std::int64_t first_token,
                              const DLTensor *hidden) noexcept {
            (*static_cast<Callable *>(user))(layer, first_token, ConstTensor(*hidden));
        };
        options.user = const_cast<void *>(static_cast<const void *>(&observer));
        check(halyard_stack_forward(context, get(), input_ids.get("input_ids"), nullptr, nullptr, &options,
                                    logits.get("logits")));
    }

    /// Whether there is one.
    explicit operator bool() const noexcept { return stack_ != nullptr; }
    /// The argument that a C function takes.
    const halyard_stack *get() const noexcept { return stack_.get(); }

    /// Bytes that `forward_saving` saves of so many sequences.
    std::int64_t saved_bytes(std::int64_t batch, std::int64_t tokens) const {
        std::int64_t bytes = 0;
        check(halyard_stack_saved_size(get(), batch, tokens, &bytes));
        return bytes;
    }
    /// The logits of `forward_all` or, of a stack without lm_head, the hidden states, of whole sequences in f32; in `bytes` bytes, aligned
    /// to 64, it saves what `backward` needs besides the ids. token_types: {}, or as for `hidden_states`.
    void forward_saving(const TokenIds &input_ids, const TokenIds &token_types, void *saved, std::int64_t bytes,
                        const Tensor &result, const halyard_context *context = nullptr) const {
        check(halyard_stack_forward_saving(context, get(), input_ids.get("input_ids"), token_types.get("token_types"),
                                           saved, bytes, result.get("result")));
    }
    /// The gradients of all parameters, from the gradient of the result.
    void backward(const TokenIds &input_ids, const TokenIds &token_types, const void *saved, std::int64_t bytes,
                  const ConstTensor &dresult, const StackGradients &gradients,
                  const halyard_context *context = nullptr) const {
        std::vector<halyard_block_gradients> of_blocks;
        for (const BlockGradients &block : gradients.blocks) {
            of_blocks.push_back(block.get());
        }
        halyard_stack_gradients c{};
        c.accumulate = gradients.accumulate ? 1 : 0;
        c.embed_tokens = gradients.embed_tokens.get("embed_tokens");
        c.embed_positions = gradients.embed_positions.get("embed_positions");
        c.embed_types = gradients.embed_types.get("embed_types");
        c.embed_norm = gradients.embed_norm.get("embed_norm");
        c.embed_norm_bias = gradients.embed_norm_bias.get("embed_norm_bias");
        c.norm = gradients.norm.get("norm");
        c.norm_bias = gradients.norm_bias.get("norm_bias");
        c.lm_head = gradients.lm_head.get("lm_head");
        c.blocks = of_blocks.empty() ? nullptr : of_blocks.data();
        check(halyard_stack_backward(context, get(), input_ids.get("input_ids"), token_types.get("token_types"), saved,
                                     bytes, dresult.get("dresult"), &c));
    }

private:
    /// Calls a C function with the weights as it takes them.
    template<typename Call>
    static void with_c_weights(const StackWeights &weights, const Call &call) {
        halyard_stack_weights w{};
        w.embed_tokens = weights.embed_tokens.get("embed_tokens");
        w.embed_positions = weights.embed_positions.get("embed_positions");
        w.embed_types = weights.embed_types.get("embed_types");
        w.embed_norm = weights.embed_norm.get("embed_norm");
        w.embed_norm_bias = weights.embed_norm_bias.get("embed_norm_bias");
        w.norm = weights.norm.get("norm");
        w.norm_bias = weights.norm_bias.get("norm_bias");
        w.lm_head = weights.lm_head.get("lm_head");
        w.quantization = weights.quantization;
        const detail::CodesPointer head(weights.lm_head_codes), table(weights.embed_tokens_codes);
        w.lm_head_codes = head.get();
        w.lm_head_packed = detail::c_weights(weights.lm_head_packed);
        w.embed_tokens_codes = table.get();
        check(call(w));
    }

    void call(const TokenIds &input_ids, KvCache &cache, const Sequences &sequences,
              const halyard_stack_options *options, const Tensor &logits, const halyard_context *context) const {
        Block::require(cache);
        const DLTensor *const ids = input_ids.get("input_ids");
        const std::int64_t *const indices = detail::indices_of(sequences, ids, 2);
        check(halyard_stack_forward(context, get(), ids, cache.get(), indices, options, logits.get("logits")));
    }

    struct Destroy {
        void operator()(halyard_stack *stack) const noexcept { halyard_stack_destroy(stack); }
    };
    std::unique_ptr<halyard_stack, Destroy> stack_;
};

}  // namespace halyard

#endif
