// The C++ interface of rotary position embedding and of the cache of keys and values: every option reaches the C
// function.
#include "halyard/attention.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace {

using Values = std::vector<float>;

Values values(int seed, std::size_t count) {
    Values result(count);
    for (std::size_t i = 0; i < count; i++) {
        result[i] = static_cast<float>(static_cast<int>((i * 7 + static_cast<std::size_t>(seed) * 5) % 23) - 11) / 16;
    }
    return result;
}

// ---- Rotary position embedding -------------------------------------------------------------------------------------

constexpr std::size_t batch = 2, tokens = 3, heads = 2, head_dim = 8;

/** What the C functions make of x. */
Values rotated(const halyard_rope_options &options, const Values &x, const DLTensor *positions) {
    halyard_rope *rope = nullptr;
    EXPECT_EQ(halyard_rope_create(&options, &rope), HALYARD_OK) << halyard_last_error();
    Values y(x.size());
    const halyard::ConstTensor xs(x, {batch, tokens, heads, head_dim});
    const halyard::Tensor ys(y, {batch, tokens, heads, head_dim});
    EXPECT_EQ(halyard_rope_apply(nullptr, rope, xs.get(), positions, ys.get()), HALYARD_OK) << halyard_last_error();
    halyard_rope_destroy(rope);
    return y;
}

halyard::RopeOptions llama3_options() {
    halyard::RopeOptions options;
    options.head_dim = head_dim;
    options.rotary_dim = 6;
    options.max_positions = 600;
    options.rope_theta = 500;
    options.interleaved = true;
    options.scaling = halyard::RopeScaling::llama3;
    options.factor = 8;
    options.low_freq_factor = 0.5;
    options.high_freq_factor = 5;
    options.original_max_position_embeddings = 60;
    return options;
}

TEST(CppRope, PassesItsOptionsOn) {
    const Values x = values(1, batch * tokens * heads * head_dim);
    const halyard::ConstTensor xs(x, {batch, tokens, heads, head_dim});
    Values y(x.size());
    const halyard::Tensor ys(y, {batch, tokens, heads, head_dim});

    halyard_rope_options c{};
    c.head_dim = head_dim;
    c.max_positions = 600;
    c.rope_theta = 10000;
    halyard::RopeOptions plain;
    plain.head_dim = head_dim;
    plain.max_positions = 600;
    halyard::Rope(plain).apply(xs, ys);
    EXPECT_EQ(y, rotated(c, x, nullptr));

    c.scaling = HALYARD_ROPE_LINEAR;
    c.factor = 3;
    plain.scaling = halyard::RopeScaling::linear;
    plain.factor = 3;
    halyard::Rope(plain).apply(xs, ys, halyard::Context().get());
    EXPECT_EQ(y, rotated(c, x, nullptr));

    c = {head_dim, 6, 600, 500, 1, HALYARD_ROPE_LLAMA3, 8, 0.5, 5, 60};
    const halyard::Rope rope(llama3_options());
    rope.apply(xs, ys);
    EXPECT_EQ(y, rotated(c, x, nullptr));

    Values back(x.size());
    rope.apply_backward(ys, halyard::Positions(), halyard::Tensor(back, {batch, tokens, heads, head_dim}));
    for (std::size_t i = 0; i < x.size(); i++) {
        EXPECT_NEAR(back[i], x[i], 1e-5f) << i;
    }

    const halyard::RopeOptions got = rope.options();
    EXPECT_EQ(got.head_dim, static_cast<std::int64_t>(head_dim));
    EXPECT_EQ(got.rotary_dim, 6);
    EXPECT_EQ(got.max_positions, 600);
    EXPECT_EQ(got.rope_theta, 500);
    EXPECT_TRUE(got.interleaved);
    EXPECT_EQ(got.scaling, halyard::RopeScaling::llama3);
    EXPECT_EQ(got.factor, 8);
    EXPECT_EQ(got.low_freq_factor, 0.5);
    EXPECT_EQ(got.high_freq_factor, 5);
    EXPECT_EQ(got.original_max_position_embeddings, 60);
    EXPECT_EQ(halyard::Rope(plain).options().rotary_dim, static_cast<std::int64_t>(head_dim));
}

TEST(CppRope, TakesPositionsOfEveryKind) {
    const Values x = values(2, batch * tokens * heads * head_dim);
    const halyard::ConstTensor xs(x, {batch, tokens, heads, head_dim});
    const halyard::Rope rope(llama3_options());
    const halyard_rope_options c = {head_dim, 6, 600, 500, 1, HALYARD_ROPE_LLAMA3, 8, 0.5, 5, 60};

    std::vector<std::int64_t> wide = {5, 599, 0, 7, 8, 100};
    std::int64_t shape[] = {batch, tokens};
    DLTensor tensor{};
    tensor.data = wide.data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = 2;
    tensor.dtype = {kDLInt, 64, 1};
    tensor.shape = shape;
    const Values expected = rotated(c, x, &tensor);
    const std::array<std::int32_t, 6> narrow = {5, 599, 0, 7, 8, 100};
    const halyard::Positions copy = halyard::Positions(narrow, {batch, tokens});
    for (const halyard::Positions &positions :
         {halyard::Positions(wide, {batch, tokens}), halyard::Positions(wide.data(), {batch, tokens}),
          halyard::Positions(tensor), copy}) {
        Values y(x.size());
        rope.apply(xs, positions, {y, {batch, tokens, heads, head_dim}});
        EXPECT_EQ(y, expected);
    }

    // Positions with one axis hold for each batch; x is rotated in place.
    tensor.ndim = 1;
    shape[0] = tokens;
    Values y = x;
    const halyard::Tensor ys(y, {batch, tokens, heads, head_dim});
    rope.apply(ys, std::vector<std::int32_t>{5, 599, 0}, ys, halyard::Context().get());
    EXPECT_EQ(y, rotated(c, x, &tensor));
    rope.apply(xs, std::nullopt, ys);
    EXPECT_EQ(y, rotated(c, x, nullptr));

    try {
        rope.apply(xs, {narrow, {batch, tokens + 1}}, ys);
        FAIL() << "too few positions are accepted";
    } catch (const halyard::Error &error) {
        EXPECT_NE(std::string(error.what()).find("positions has a shape that needs"), std::string::npos)
            << error.what();
    }
    EXPECT_THROW(rope.apply(xs, std::vector<std::uint32_t>{1, 2, 3}, ys), halyard::Error);
    EXPECT_THROW(rope.apply(xs, std::vector<int>{1, 2, 600}, ys), halyard::Error);
}

TEST(CppRope, IsMovedAndThrows) {
    halyard::Rope rope(llama3_options());
    halyard::Rope moved = std::move(rope);
    EXPECT_TRUE(moved);
    EXPECT_FALSE(rope);  // NOLINT: moved from
    Values x = values(3, head_dim);
    EXPECT_THROW(rope.apply({x, {1, 1, head_dim}}, {x, {1, 1, head_dim}}), halyard::Error);
    EXPECT_THROW(rope.options(), halyard::Error);
    EXPECT_THROW(halyard::Rope{halyard::RopeOptions()}, halyard::Error);
}

// ---- Cache of keys and values
// ----------------------------------------------------------------------------------------

TEST(CppKvCache, PassesItsArgumentsOn) {
    halyard::KvCacheOptions options;
    options.n_layers = 2;
    options.n_sequences = 3;
    options.n_kv_heads = heads;
    options.head_dim = head_dim;
    options.max_positions = 10;
    options.dtype = halyard::element<halyard::bf16>::dtype;
    const halyard_kv_cache_options c = {2, 3, heads, head_dim, 10, {kDLBfloat, 16, 1}};
    std::int64_t bytes = 0;
    ASSERT_EQ(halyard_kv_cache_size(&c, &bytes), HALYARD_OK);
    EXPECT_EQ(halyard::KvCache::size(options), bytes);

    halyard::KvCache cache(options);
    const Values k = values(4, batch * tokens * heads * head_dim), v = values(5, k.size());
    const halyard::ConstTensor ks(k, {batch, tokens, heads, head_dim}), vs(v, {batch, tokens, heads, head_dim});
    cache.append(1, {2, 0}, ks, vs);
    cache.append(0, ks, vs, halyard::Context().get());
    EXPECT_EQ(cache.length(1, 2), 3);
    EXPECT_EQ(cache.length(1, 1), 0);
    EXPECT_EQ(cache.length(0, 1), 3);
    EXPECT_EQ(cache.length(0, 3), -1);

    // The values are multiples of 1/16 below 1: exact in bf16.
    const std::size_t sequence = tokens * heads * head_dim;
    Values got_k(sequence), got_v(sequence);
    const halyard::Tensor got_ks(got_k, {tokens, heads, head_dim}), got_vs(got_v, {tokens, heads, head_dim});
    cache.read(1, 0, 0, got_ks, got_vs);
    EXPECT_EQ(got_k, Values(k.begin() + sequence, k.end()));
    EXPECT_EQ(got_v, Values(v.begin() + sequence, v.end()));
    const halyard::Tensor one(got_k.data(), {1, heads, head_dim});
    cache.read_values(1, 2, 2, one);
    EXPECT_EQ(Values(got_k.begin(), got_k.begin() + heads * head_dim),
              Values(v.begin() + 2 * heads * head_dim, v.begin() + sequence));
    cache.read_keys(1, 2, 2, one, halyard::Context().get());
    EXPECT_EQ(Values(got_k.begin(), got_k.begin() + heads * head_dim),
              Values(k.begin() + 2 * heads * head_dim, k.begin() + sequence));

    cache.truncate(0, 1);
    EXPECT_EQ(cache.length(1, 0), 1);
    EXPECT_EQ(cache.length(0, 0), 1);
    EXPECT_EQ(cache.length(1, 2), 3);

    const halyard::KvCacheOptions got = cache.options();
    EXPECT_EQ(got.n_layers, 2);
    EXPECT_EQ(got.n_sequences, 3);
    EXPECT_EQ(got.n_kv_heads, static_cast<std::int64_t>(heads));
    EXPECT_EQ(got.head_dim, static_cast<std::int64_t>(head_dim));
    EXPECT_EQ(got.max_positions, 10);
    EXPECT_EQ(got.dtype.code, kDLBfloat);

    // One sequence, without an axis for it.
    const std::vector<std::int64_t> which = {1};
    const halyard::ConstTensor single(k.data(), {tokens, heads, head_dim});
    cache.append(1, which, single, single);
    cache.append(1, {1}, single, single);
    EXPECT_EQ(cache.length(1, 1), 6);
    EXPECT_THROW(cache.append(1, {0, 1}, single, single), halyard::Error);
    EXPECT_THROW(cache.append(1, {0}, ks, vs), halyard::Error);
    EXPECT_THROW(cache.append(1, {0, 0}, ks, vs), halyard::Error);
    EXPECT_EQ(cache.length(1, 0), 1);
}

TEST(CppKvCache, IsMovedAndTakesMemory) {
    halyard::KvCacheOptions options;
    options.n_kv_heads = heads;
    options.head_dim = head_dim;
    options.max_positions = 10;
    const std::int64_t bytes = halyard::KvCache::size(options);
    std::vector<char> memory(static_cast<std::size_t>(bytes) + 64);
    char *const aligned = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
    halyard::KvCache cache(options, aligned, bytes);
    const Values k(heads * head_dim, 1.5f);
    cache.append(0, {k, {1, heads, head_dim}}, {k, {1, heads, head_dim}});
    float first = 0;
    std::memcpy(&first, aligned, sizeof first);
    EXPECT_EQ(first, 1.5f);
    EXPECT_THROW(halyard::KvCache(options, aligned, bytes - 1), halyard::Error);

    halyard::KvCache moved = std::move(cache);
    EXPECT_EQ(moved.length(0, 0), 1);
    EXPECT_FALSE(cache);  // NOLINT: moved from
    EXPECT_EQ(cache.length(0, 0), -1);
    EXPECT_THROW(cache.truncate(0, 0), halyard::Error);
    EXPECT_THROW(cache.options(), halyard::Error);
    EXPECT_THROW(halyard::KvCache{halyard::KvCacheOptions()}, halyard::Error);
    EXPECT_THROW(halyard::KvCache::size({}), halyard::Error);
}

}  // namespace
