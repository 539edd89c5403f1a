// The C++ interface of attention: every option reaches the C functions.
#include "halyard/attention.hpp"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace {

using Values = std::vector<float>;

constexpr std::size_t batch = 2, tokens = 5, heads = 4, kv_heads = 2, head_dim = 8;

Values values(int seed, std::size_t count) {
    Values result(count);
    for (std::size_t i = 0; i < count; i++) {
        result[i] = static_cast<float>(static_cast<int>((i * 7 + static_cast<std::size_t>(seed) * 5) % 23) - 11) / 8;
    }
    return result;
}

struct Operands {
    const Values q = values(1, batch *tokens *heads *head_dim), k = values(2, batch *tokens *kv_heads *head_dim),
                 v = values(3, batch *tokens *kv_heads *head_dim);
    const Values q_weight = values(4, head_dim), k_weight = values(5, head_dim);
    const halyard::ConstTensor qs{q, {batch, tokens, heads, head_dim}}, ks{k, {batch, tokens, kv_heads, head_dim}},
        vs{v, {batch, tokens, kv_heads, head_dim}};
    Values y = Values(q.size());
    const halyard::Tensor ys{y, {batch, tokens, heads, head_dim}};
};

TEST(CppAttention, EveryOptionIsPassedOn) {
    Operands o;
    const halyard::ConstTensor q_weight(o.q_weight, {head_dim}), k_weight(o.k_weight, {head_dim});
    const halyard::Rope rope({head_dim, 0, 100, 10000});
    halyard_attention_options c{};
    halyard::AttentionOptions options;
    const auto expect_same = [&](const char *what) {
        Values expected(o.q.size());
        const halyard::Tensor y(expected, {batch, tokens, heads, head_dim});
        ASSERT_EQ(halyard_attention(nullptr, o.qs.get(), o.ks.get(), o.vs.get(), &c, y.get()), HALYARD_OK)
            << halyard_last_error();
        const Values before = o.y;
        halyard::attention(o.qs, o.ks, o.vs, options, o.ys);
        EXPECT_EQ(o.y, expected) << what;
        EXPECT_NE(o.y, before) << what;
    };
    expect_same("none");
    c.causal = 1;
    options.causal = true;
    expect_same("causal");
    c.scale = options.scale = 0.5f;
    expect_same("scale");
    c.sliding_window = options.sliding_window = 2;
    expect_same("sliding_window");
    c.softcap = options.softcap = 1.5f;
    expect_same("softcap");
    c.q_norm_weight = q_weight.get();
    options.q_norm_weight = q_weight;
    expect_same("q_norm_weight");
    c.k_norm_weight = k_weight.get();
    options.k_norm_weight = k_weight;
    expect_same("k_norm_weight");
    c.qk_norm_eps = options.qk_norm_eps = 0.25f;
    expect_same("qk_norm_eps");
    c.qk_norm_flags = options.qk_norm_flags = HALYARD_RMS_UNIT_OFFSET;
    expect_same("qk_norm_flags");
    c.rope = options.rope = rope.get();
    expect_same("rope");
    Values c_sums(batch * tokens * heads), sums(c_sums.size());
    const halyard::Tensor c_log_sum_exp(c_sums, {batch, tokens, heads});
    c.log_sum_exp = c_log_sum_exp.get();
    options.log_sum_exp = halyard::Tensor(sums, {batch, tokens, heads});
    ASSERT_EQ(halyard_attention(nullptr, o.qs.get(), o.ks.get(), o.vs.get(), &c, o.ys.get()), HALYARD_OK);
    halyard::attention(o.qs, o.ks, o.vs, options, o.ys);
    EXPECT_EQ(sums, c_sums);
    EXPECT_NE(sums[0], 0.0f);
}

TEST(CppAttention, GradientsAreThoseOfTheFunctionInC) {
    Operands o;
    Values sums(batch * tokens * heads);
    const Values dy = values(6, o.q.size());
    const halyard::ConstTensor dys(dy, {batch, tokens, heads, head_dim}), given_sums(sums, {batch, tokens, heads});
    halyard::AttentionOptions options;
    options.causal = true;
    options.sliding_window = 3;
    options.softcap = 1.5f;
    options.log_sum_exp = halyard::Tensor(sums, {batch, tokens, heads});
    halyard::attention(o.qs, o.ks, o.vs, options, o.ys);
    const halyard::ConstTensor y(o.y, {batch, tokens, heads, head_dim});
    Values got[3] = {Values(o.q.size()), Values(o.k.size()), Values(o.k.size())},
           expected[3] = {got[0], got[1], got[2]};
    const auto tensor = [&](Values &of, std::size_t count) {
        return halyard::Tensor(of, {batch, tokens, count, head_dim});
    };
    halyard::attention_backward(o.qs, o.ks, o.vs, y, given_sums, dys, options, tensor(got[0], heads),
                                tensor(got[1], kv_heads), tensor(got[2], kv_heads));
    const halyard_attention_options c = options.get();
    const halyard::Tensor dq = tensor(expected[0], heads), dk = tensor(expected[1], kv_heads),
                          dv = tensor(expected[2], kv_heads);
    ASSERT_EQ(halyard_attention_backward(nullptr, o.qs.get(), o.ks.get(), o.vs.get(), y.get(), given_sums.get(),
                                         dys.get(), &c, dq.get(), dk.get(), dv.get()),
              HALYARD_OK)
        << halyard_last_error();
    for (int i = 0; i < 3; i++) {
        EXPECT_EQ(got[i], expected[i]) << i;
        EXPECT_NE(got[i], Values(got[i].size())) << i;
    }
    halyard::attention_backward(o.qs, o.ks, o.vs, y, given_sums, dys, options, {}, {}, {});
}

TEST(CppAttention, ByWayOfACache) {
    Operands o;
    halyard::AttentionOptions options;
    options.causal = true;
    halyard::attention(o.qs, o.ks, o.vs, options, o.ys, halyard::Context().get());
    halyard::KvCacheOptions cache_options;
    cache_options.n_layers = 2;
    cache_options.n_sequences = 3;
    cache_options.n_kv_heads = kv_heads;
    cache_options.head_dim = head_dim;
    cache_options.max_positions = 10;
    halyard::KvCache cache(cache_options);
    Values y(o.q.size());
    const halyard::Tensor ys(y, {batch, tokens, heads, head_dim});
    halyard::attention(o.qs, o.ks, o.vs, cache, 1, options, ys);
    EXPECT_EQ(y, o.y);
    EXPECT_EQ(cache.length(1, 1), static_cast<std::int64_t>(tokens));
    EXPECT_EQ(cache.length(1, 2), 0);
    halyard::attention(o.qs, o.ks, o.vs, cache, 0, {2, 0}, options, ys, halyard::Context().get());
    EXPECT_EQ(y, o.y);
    EXPECT_EQ(cache.length(0, 2), static_cast<std::int64_t>(tokens));
    EXPECT_EQ(cache.length(0, 1), 0);
    EXPECT_THROW(halyard::attention(o.qs, o.ks, o.vs, cache, 0, {2}, options, ys), halyard::Error);
    EXPECT_THROW(halyard::attention(o.qs, o.ks, o.vs, cache, 0, {2, 2}, options, ys), halyard::Error);
    EXPECT_THROW(halyard::attention(o.qs, o.ks, o.vs, cache, 2, options, ys), halyard::Error);
    halyard::KvCache none;
    EXPECT_THROW(halyard::attention(o.qs, o.ks, o.vs, none, 0, options, ys), halyard::Error);
}

}  // namespace
