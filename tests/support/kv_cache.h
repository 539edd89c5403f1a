// Caches of keys and values for the tests, and tokens to put into them.
#ifndef HALYARD_TESTS_SUPPORT_KV_CACHE_H
#define HALYARD_TESTS_SUPPORT_KV_CACHE_H

#include <cstdint>
#include <memory>
#include <vector>

#include "halyard/attention.h"
#include "support/invocation.h"

namespace halyard::tests {

struct DestroyCache {
    void operator()(halyard_kv_cache *cache) const { halyard_kv_cache_destroy(cache); }
};
using Handle = std::unique_ptr<halyard_kv_cache, DestroyCache>;

inline halyard_kv_cache_options options_of(std::int64_t layers, std::int64_t sequences, std::int64_t heads,
                                           std::int64_t head_dim, std::int64_t max_positions, Dtype type) {
    return {layers, sequences, heads, head_dim, max_positions, dlpack_type(type)};
}

inline std::int64_t size_of_cache(const halyard_kv_cache_options &options) {
    std::int64_t bytes = -1;
    EXPECT_EQ(halyard_kv_cache_size(&options, &bytes), HALYARD_OK) << halyard_last_error();
    return bytes;
}

/** A cache in guarded memory, every byte of which is 0xff at first. */
class Cache {
public:
    explicit Cache(const halyard_kv_cache_options &o)
        : options(o), bytes(size_of_cache(o)), memory(Dtype::f16, {{bytes / 2}, {}, Placement::ends_at_guard, 0, 0}) {
        halyard_kv_cache *made = nullptr;
        EXPECT_EQ(halyard_kv_cache_create(&options, memory.view.data, bytes, &made), HALYARD_OK)
            << halyard_last_error();
        handle.reset(made);
    }

    halyard_kv_cache *get() const { return handle.get(); }
    std::int64_t length(std::int64_t layer, std::int64_t sequence) const {
        return halyard_kv_cache_length(get(), layer, sequence);
    }
    std::vector<std::int64_t> lengths() const {
        std::vector<std::int64_t> all;
        for (std::int64_t layer = 0; layer < options.n_layers; layer++) {
            for (std::int64_t sequence = 0; sequence < options.n_sequences; sequence++) {
                all.push_back(length(layer, sequence));
            }
        }
        return all;
    }

    const halyard_kv_cache_options options;
    const std::int64_t bytes;
    Tensor memory;
    Handle handle;
};

// ---- Contents ----

/** What a token holds, as bits of a type: a function of seed, position, head and feature. */
using Contents = std::uint32_t (*)(Dtype type, std::uint64_t seed, std::int64_t position, std::int64_t head,
                                   std::int64_t feature);

inline std::uint32_t ordinary(Dtype type, std::uint64_t seed, std::int64_t position, std::int64_t head,
                              std::int64_t feature) {
    return encode(type, bell(seed + 100 * static_cast<std::uint64_t>(head), position, feature));
}

inline constexpr std::uint64_t key_seed = 1, value_seed = 51;

/** Keys or values of tokens [first, first + T): [T, heads, head_dim], or [batch, T, ...] of as many sequences. */
struct Tokens {
    Dtype type = Dtype::f32;
    std::int64_t batch = 0, count = 1, heads = 1, head_dim = 1;
    std::int64_t gap = 0;     // elements between heads
    bool transposed = false;  // heads before tokens in memory

    Form form() const {
        const std::int64_t pitch = head_dim + gap;
        Shape shape = {count, heads, head_dim};
        Shape strides = transposed ? Shape{pitch, pitch * count, 1} : Shape{pitch * heads, pitch, 1};
        if (batch > 0) {
            shape.insert(shape.begin(), batch);
            strides.insert(strides.begin(), pitch * count * heads);
        }
        return {shape, gap == 0 && !transposed ? Shape() : strides, Placement::ends_at_guard, 0, 0};
    }
};

/** Sequence s holds the contents with seed + 1000 s. */
inline void fill(Tensor &tensor, const Tokens &tokens, Contents contents, std::uint64_t seed, std::int64_t first,
                 const std::vector<std::int64_t> &sequences = {0}) {
    for (std::int64_t row = 0; row < tensor.rows(); row++) {
        const std::int64_t token = row / tokens.heads;
        const std::int64_t sequence = sequences[static_cast<std::size_t>(token / tokens.count)];
        for (std::int64_t i = 0; i < tokens.head_dim; i++) {
            tensor.set_bits(row, i,
                            contents(tokens.type, seed + 1000 * static_cast<std::uint64_t>(sequence),
                                     first + token % tokens.count, row % tokens.heads, i));
        }
    }
}

/** Appends tokens [first, first + count) of sequence 0 to layer 0. */
inline halyard_status append(const halyard_context *context, const Cache &cache, const Tokens &tokens,
                             Contents contents, std::int64_t first) {
    Tensor k(tokens.type, tokens.form()), v(tokens.type, tokens.form());
    fill(k, tokens, contents, key_seed, first);
    fill(v, tokens, contents, value_seed, first);
    const halyard_status status = halyard_kv_cache_append(context, cache.get(), 0, nullptr, &k.view, &v.view);
    EXPECT_TRUE(k.surroundings_intact() && v.surroundings_intact());
    return status;
}

}  // namespace halyard::tests

#endif
