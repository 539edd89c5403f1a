/** @file
 * attention.hpp: the C++17 interface of attention.h, in the manner of halyard.hpp. */
#ifndef HALYARD_ATTENTION_HPP
#define HALYARD_ATTENTION_HPP

#include <cstdint>
#include <initializer_list>

#include "attention.h"
#include "halyard.hpp"

namespace halyard {

/* ---- Positions and sequences --------------------------------------------------------------------------------- */

/// Positions of tokens, as int32 or int64, [T] or [batch, T]; or none: token t has position t.
using Positions = Integers;

/// Which sequences of a cache a call concerns, one for each index of its batch; by default 0, 1, ... Refers to the
/// integers it is made from, and a list in braces lives until the end of the call that it is written in.
class Sequences {
public:
    Sequences() noexcept = default;
    /// 0, 1, ...
    Sequences(std::nullopt_t) noexcept {}
    /// `count` indices.
    Sequences(const std::int64_t *data, std::size_t count) noexcept : data_(data), count_(count), present_(true) {}
    /// A list in braces.
    Sequences(std::initializer_list<std::int64_t> list) noexcept : Sequences(list.begin(), list.size()) {}
    /// A container of std::int64_t.
    template<class Container, class T = detail::pointee<const Container>,
             std::enable_if_t<std::is_same_v<std::remove_const_t<T>, std::int64_t>, int> = 0>
    Sequences(const Container &sequences) noexcept : Sequences(std::data(sequences), std::size(sequences)) {}

    /// The argument that a C function takes with tokens of `tensor`, which it knows as `name`; throws `Error` unless there
    /// is one for each index of its batch.
    const std::int64_t *get(const ConstTensor &tensor, const char *name = "the tensor") const {
        const DLTensor *t = tensor.get(name);
        if (present_ && t != nullptr && t->shape != nullptr && (t->ndim == 3 || t->ndim == 4) &&
            static_cast<std::int64_t>(count_) != (t->ndim == 4 ? t->shape[0] : 1)) {
            throw Error(HALYARD_INVALID_ARGUMENT, "halyard::Sequences: there must be one for each index of the batch");
        }
        return data_;
    }

private:
    const std::int64_t *data_ = nullptr;
    std::size_t count_ = 0;
    bool present_ = false;
};

/* ---- Rotary position embedding --------------------------------------------------------------------------------- */

/// How the angles of positions are stretched for contexts longer than a model was trained on.
enum class RopeScaling {
    none = HALYARD_ROPE_UNSCALED,  ///< as trained
    linear = HALYARD_ROPE_LINEAR,  ///< positions divided by `factor`
    llama3 = HALYARD_ROPE_LLAMA3,  ///< low frequencies divided by `factor`, high ones kept, those between interpolated
};

/// What a table of rotations is made for.
struct RopeOptions {
    std::int64_t head_dim = 0;                ///< 2 to 1024, even
    std::int64_t rotary_dim = 0;              ///< the first so many features of a head are rotated; 0: all
    std::int64_t max_positions = 0;           ///< positions are in [0, max_positions)
    double rope_theta = 10000;                ///< > 1
    bool interleaved = false;                 ///< pairs of features (2i, 2i + 1) instead of (i, i + rotary_dim / 2)
    RopeScaling scaling = RopeScaling::none;  ///< with the fields below
    double factor = 1;                        ///< of both scalings
    double low_freq_factor = 1;               ///< of RopeScaling::llama3
    double high_freq_factor = 4;              ///< of RopeScaling::llama3
    std::int64_t original_max_position_embeddings = 8192;  ///< of RopeScaling::llama3
};

/// A table of cosines and sines. Move-only; may be used by any number of threads.
///
///     const halyard::Rope rope({128, 0, 8192, 500000});
///     rope.apply({q, {tokens, 32, 128}}, {q, {tokens, 32, 128}});
class Rope {
public:
    /// None; calls refuse it.
    Rope() noexcept = default;

    /// Makes the table.
    explicit Rope(const RopeOptions &options) {
        halyard_rope_options c{};
        c.head_dim = options.head_dim;
        c.rotary_dim = options.rotary_dim;
        c.max_positions = options.max_positions;
        c.rope_theta = options.rope_theta;
        c.interleaved = options.interleaved ? 1 : 0;
        c.scaling = static_cast<halyard_rope_scaling>(options.scaling);
        c.factor = options.factor;
        c.low_freq_factor = options.low_freq_factor;
        c.high_freq_factor = options.high_freq_factor;
        c.original_max_position_embeddings = options.original_max_position_embeddings;
        halyard_rope *rope = nullptr;
        check(halyard_rope_create(&c, &rope));
        rope_.reset(rope);
    }

    /// What it was made with, with rotary_dim filled in.
    RopeOptions options() const {
        halyard_rope_options c{};
        check(halyard_rope_get_options(get(), &c));
        RopeOptions options;
        options.head_dim = c.head_dim;
        options.rotary_dim = c.rotary_dim;
        options.max_positions = c.max_positions;
        options.rope_theta = c.rope_theta;
        options.interleaved = c.interleaved != 0;
        options.scaling = static_cast<RopeScaling>(c.scaling);
        options.factor = c.factor;
        options.low_freq_factor = c.low_freq_factor;
        options.high_freq_factor = c.high_freq_factor;
        options.original_max_position_embeddings = c.original_max_position_embeddings;
        return options;
    }

    /// y = x rotated: [(batch,) T, n_heads, head_dim]; y may be x. Token t has position t.
    void apply(const ConstTensor &x, const Tensor &y, const halyard_context *context = nullptr) const {
        apply(x, Positions(), y, context);
    }
    /// y = x rotated, with a position for each token.
    void apply(const ConstTensor &x, const Positions &positions, const Tensor &y,
               const halyard_context *context = nullptr) const {
        check(halyard_rope_apply(context, get(), x.get("x"), positions.get("positions"), y.get("y")));
    }
    /// The gradient of apply: dx = dy rotated back; dx may be dy.
    void apply_backward(const ConstTensor &dy, const Positions &positions, const Tensor &dx,
                        const halyard_context *context = nullptr) const {
        check(halyard_rope_apply_backward(context, get(), dy.get("dy"), positions.get("positions"), dx.get("dx")));
    }

    /// Whether there is one.
    explicit operator bool() const noexcept { return rope_ != nullptr; }
    /// The argument that a C function takes.
    const halyard_rope *get() const noexcept { return rope_.get(); }

private:
    struct Destroy {
        void operator()(halyard_rope *rope) const noexcept { halyard_rope_destroy(rope); }
    };
    std::unique_ptr<halyard_rope, Destroy> rope_;
};

/* ---- Cache of keys and values ----------------------------------------------------------------------------------- */

/// The size of a cache and what it stores.
struct KvCacheOptions {
    std::int64_t n_layers = 1;                 ///< of the model
    std::int64_t n_sequences = 1;              ///< independent of each other
    std::int64_t n_kv_heads = 0;               ///< heads of keys and values
    std::int64_t head_dim = 0;                 ///< features of a head
    std::int64_t max_positions = 0;            ///< of each layer and sequence
    DLDataType dtype = element<float>::dtype;  ///< what is stored: `element<halyard::bf16>::dtype`, ...
};

/// Keys and values of every layer and sequence. Move-only. Calls that change it may not run at the same time as others
/// that use it.
class KvCache {
public:
    /// None; calls refuse it.
    KvCache() noexcept = default;

    /// Bytes that a cache takes.
    static std::int64_t size(const KvCacheOptions &options) {
        std::int64_t bytes = 0;
        const halyard_kv_cache_options c = c_options(options);
        check(halyard_kv_cache_size(&c, &bytes));
        return bytes;
    }

    /// A cache in memory of the library.
    explicit KvCache(const KvCacheOptions &options) : KvCache(options, nullptr, 0) {}
    /// A cache in `bytes` bytes at `memory`, 64-byte aligned, which must outlive it.
    KvCache(const KvCacheOptions &options, void *memory, std::int64_t bytes) {
        halyard_kv_cache *cache = nullptr;
        const halyard_kv_cache_options c = c_options(options);
        check(halyard_kv_cache_create(&c, memory, bytes, &cache));
        cache_.reset(cache);
    }

    /// A cache in the memory of a device, for tensors there.
    KvCache(const KvCacheOptions &options, DLDevice device) {
        halyard_kv_cache *cache = nullptr;
        const halyard_kv_cache_options c = c_options(options);
        check(halyard_kv_cache_create_on_device(&c, device, nullptr, 0, &cache));
        cache_.reset(cache);
    }

    /// What it was made with.
    KvCacheOptions options() const {
        halyard_kv_cache_options c{};
        check(halyard_kv_cache_get_options(get(), &c));
        KvCacheOptions options;
        options.n_layers = c.n_layers;
        options.n_sequences = c.n_sequences;
        options.n_kv_heads = c.n_kv_heads;
        options.head_dim = c.head_dim;
        options.max_positions = c.max_positions;
        options.dtype = c.dtype;
        return options;
    }

    /// Positions that are filled; -1 if an argument is out of range.
    std::int64_t length(std::int64_t layer, std::int64_t sequence) const noexcept {
        return halyard_kv_cache_length(get(), layer, sequence);
    }
    /// Forgets what lies at and after position `length` of a sequence, in every layer.
    void truncate(std::int64_t sequence, std::int64_t length) {
        check(halyard_kv_cache_truncate(get(), sequence, length));
    }

    /// Stores T more keys and values per sequence: k, v: [(batch,) T, n_kv_heads, head_dim], any element type.
    void append(std::int64_t layer, const Sequences &sequences, const ConstTensor &k, const ConstTensor &v,
                const halyard_context *context = nullptr) {
        check(halyard_kv_cache_append(context, get(), layer, sequences.get(k, "k"), k.get("k"), v.get("v")));
    }
    /// Appends to sequences 0, 1, ...
    void append(std::int64_t layer, const ConstTensor &k, const ConstTensor &v,
                const halyard_context *context = nullptr) {
        append(layer, Sequences(), k, v, context);
    }

    /// Copies positions [first, first + T) out: k, v: [T, n_kv_heads, head_dim], any element type.
    void read(std::int64_t layer, std::int64_t sequence, std::int64_t first, const Tensor &k, const Tensor &v,
              const halyard_context *context = nullptr) const {
        check(halyard_kv_cache_read(context, get(), layer, sequence, first, k.get("k"), v.get("v")));
    }
    /// The keys alone.
    void read_keys(std::int64_t layer, std::int64_t sequence, std::int64_t first, const Tensor &k,
                   const halyard_context *context = nullptr) const {
        check(halyard_kv_cache_read(context, get(), layer, sequence, first, k.get("k"), nullptr));
    }
    /// The values alone.
    void read_values(std::int64_t layer, std::int64_t sequence, std::int64_t first, const Tensor &v,
                     const halyard_context *context = nullptr) const {
        check(halyard_kv_cache_read(context, get(), layer, sequence, first, nullptr, v.get("v")));
    }

    /// Whether there is one.
    explicit operator bool() const noexcept { return cache_ != nullptr; }
    /// The argument that a C function takes.
    halyard_kv_cache *get() const noexcept { return cache_.get(); }

private:
    static halyard_kv_cache_options c_options(const KvCacheOptions &options) noexcept {
        return {options.n_layers, options.n_sequences,   options.n_kv_heads,
                options.head_dim, options.max_positions, options.dtype};
    }

    struct Destroy {
        void operator()(halyard_kv_cache *cache) const noexcept { halyard_kv_cache_destroy(cache); }
    };
    std::unique_ptr<halyard_kv_cache, Destroy> cache_;
};

/* ---- Attention ------------------------------------------------------------------------------------------------- */

/// What attention does besides: by default every query sees every key, and scores are divided by
/// sqrt(head_dim). Tensors are optional.
struct AttentionOptions {
    float scale = 0.0f;                  ///< of the scores; 0: 1/sqrt(head_dim)
    bool causal = false;                 ///< queries see no keys after their own position
    std::int64_t sliding_window = 0;     ///< 0, or how many positions back (and, without `causal`, ahead) queries see
    float softcap = 0.0f;                ///< 0, or score = softcap tanh(score / softcap)
    ConstTensor q_norm_weight;           ///< [head_dim]: heads of q go through an RMSNorm, before `rope`
    ConstTensor k_norm_weight;           ///< [head_dim]: those of k
    float qk_norm_eps = 0.0f;            ///< of these norms
    unsigned qk_norm_flags = 0;          ///< HALYARD_RMS_...
    const halyard_rope *rope = nullptr;  ///< what q and k are rotated by: Rope::get()
    std::optional<Tensor> log_sum_exp;   ///< f32 [(batch,) T, n_heads]: written, log of the sum of exp(score)

    /// As the C functions take them; valid as long as this.
    halyard_attention_options get() const {
        halyard_attention_options c{};
        c.scale = scale;
        c.causal = causal ? 1 : 0;
        c.sliding_window = sliding_window;
        c.softcap = softcap;
        c.q_norm_weight = q_norm_weight.get("q_norm_weight");
        c.k_norm_weight = k_norm_weight.get("k_norm_weight");
        c.qk_norm_eps = qk_norm_eps;
        c.qk_norm_flags = qk_norm_flags;
        c.rope = rope;
        c.log_sum_exp = log_sum_exp ? log_sum_exp->get("log_sum_exp") : nullptr;
        return c;
    }
};

/// y = softmax(scale q k^T + mask) v, head by head. q, y: [(batch,) T, n_heads, head_dim]; k, v:
/// [(batch,) S, n_kv_heads, head_dim]; the queries are the last T of S positions. y may be q.
inline void attention(const ConstTensor &q, const ConstTensor &k, const ConstTensor &v, const AttentionOptions &options,
                      const Tensor &y, const halyard_context *context = nullptr) {
    const halyard_attention_options c = options.get();
    check(halyard_attention(context, q.get("q"), k.get("k"), v.get("v"), &c, y.get("y")));
}

/// The gradients of `attention` with these options, f32, from y and log_sum_exp as it wrote them: dq in the shape of q, dk and dv in
/// that of k. Each may be left out: Tensor(). Masks and the soft cap are followed; norms and `rope` are refused.
inline void attention_backward(const ConstTensor &q, const ConstTensor &k, const ConstTensor &v, const ConstTensor &y,
                               const ConstTensor &log_sum_exp, const ConstTensor &dy, const AttentionOptions &options,
                               const Tensor &dq, const Tensor &dk, const Tensor &dv,
                               const halyard_context *context = nullptr) {
    const halyard_attention_options c = options.get();
    check(halyard_attention_backward(context, q.get("q"), k.get("k"), v.get("v"), y.get("y"),
                                     log_sum_exp.get("log_sum_exp"), dy.get("dy"), &c, dq.get("dq"), dk.get("dk"),
                                     dv.get("dv")));
}

/// Appends k and v to a layer of the cache, and attends to all that it then holds of each sequence. k, v:
/// [(batch,) T, n_kv_heads, head_dim].
inline void attention(const ConstTensor &q, const ConstTensor &k, const ConstTensor &v, KvCache &cache,
                      std::int64_t layer, const Sequences &sequences, const AttentionOptions &options, const Tensor &y,
                      const halyard_context *context = nullptr) {
    const halyard_attention_options c = options.get();
    check(halyard_attention_cached(context, q.get("q"), k.get("k"), v.get("v"), cache.get(), layer,
                                   sequences.get(q, "q"), &c, y.get("y")));
}
/// Attention by way of a cache, as above, with sequences 0, 1, ...
inline void attention(const ConstTensor &q, const ConstTensor &k, const ConstTensor &v, KvCache &cache,
                      std::int64_t layer, const AttentionOptions &options, const Tensor &y,
                      const halyard_context *context = nullptr) {
    attention(q, k, v, cache, layer, Sequences(), options, y, context);
}

}  // namespace halyard

#endif
