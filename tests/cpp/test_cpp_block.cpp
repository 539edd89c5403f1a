// The C++ interface of blocks and stacks: every field and tensor reaches the C functions, and caches, sequences and
// observers do.
#include "halyard/block.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace {

constexpr std::int64_t tokens = 5, hidden = 12, ff = 20, heads = 2, head_dim = 6, vocab = 9;
using Values = std::vector<float>;

Values values(int seed, std::int64_t count) {
    Values result(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < result.size(); i++) {
        result[i] = static_cast<float>(static_cast<int>((i * 7 + static_cast<std::size_t>(seed) * 5) % 23) - 11) / 16;
    }
    return result;
}

/** Fields that differ from each other and from those of any default. */
halyard_block_config distinct_config() {
    halyard_block_config c{};
    c.hidden_size = 1;
    c.intermediate_size = 2;
    c.num_attention_heads = 3;
    c.num_key_value_heads = 4;
    c.head_dim = 5;
    c.norm = HALYARD_NORM_LAYER;
    c.norm_placement = HALYARD_SANDWICH_NORM;
    c.rms_norm_eps = 6;
    c.norm_flags = 7;
    c.hidden_act = HALYARD_TANH;
    c.swish_beta = 8;
    c.gated_mlp = 1;
    c.causal = 1;
    c.sliding_window = 9;
    c.query_pre_attn_scalar = 10;
    c.attn_logit_softcapping = 11;
    c.rope = {12, 13, 14, 15, 1, HALYARD_ROPE_LLAMA3, 16, 17, 18, 19};
    c.max_position_embeddings = 20;
    return c;
}

void expect_equal(const halyard_block_config &a, const halyard_block_config &b) {
    EXPECT_EQ(a.hidden_size, b.hidden_size);
    EXPECT_EQ(a.intermediate_size, b.intermediate_size);
    EXPECT_EQ(a.num_attention_heads, b.num_attention_heads);
    EXPECT_EQ(a.num_key_value_heads, b.num_key_value_heads);
    EXPECT_EQ(a.head_dim, b.head_dim);
    EXPECT_EQ(a.norm, b.norm);
    EXPECT_EQ(a.norm_placement, b.norm_placement);
    EXPECT_EQ(a.rms_norm_eps, b.rms_norm_eps);
    EXPECT_EQ(a.norm_flags, b.norm_flags);
    EXPECT_EQ(a.hidden_act, b.hidden_act);
    EXPECT_EQ(a.swish_beta, b.swish_beta);
    EXPECT_EQ(a.gated_mlp, b.gated_mlp);
    EXPECT_EQ(a.causal, b.causal);
    EXPECT_EQ(a.sliding_window, b.sliding_window);
    EXPECT_EQ(a.query_pre_attn_scalar, b.query_pre_attn_scalar);
    EXPECT_EQ(a.attn_logit_softcapping, b.attn_logit_softcapping);
    EXPECT_EQ(a.rope.head_dim, b.rope.head_dim);
    EXPECT_EQ(a.rope.rotary_dim, b.rope.rotary_dim);
    EXPECT_EQ(a.rope.max_positions, b.rope.max_positions);
    EXPECT_EQ(a.rope.rope_theta, b.rope.rope_theta);
    EXPECT_EQ(a.rope.interleaved, b.rope.interleaved);
    EXPECT_EQ(a.rope.scaling, b.rope.scaling);
    EXPECT_EQ(a.rope.factor, b.rope.factor);
    EXPECT_EQ(a.rope.low_freq_factor, b.rope.low_freq_factor);
    EXPECT_EQ(a.rope.high_freq_factor, b.rope.high_freq_factor);
    EXPECT_EQ(a.rope.original_max_position_embeddings, b.rope.original_max_position_embeddings);
    EXPECT_EQ(a.max_position_embeddings, b.max_position_embeddings);
}

TEST(CppBlockConfig, HoldsEveryField) {
    expect_equal(halyard::BlockConfig(distinct_config()).get(), distinct_config());
    EXPECT_EQ(halyard::BlockConfig(distinct_config()).rope.high_freq_factor, 18);
    EXPECT_EQ(halyard::BlockConfig().get().rope.rope_theta, 0);
}

TEST(CppBlockConfig, HasPresets) {
    const std::vector<const char *> names = halyard::BlockConfig::presets();
    EXPECT_GT(names.size(), 6U);
    for (const char *const name : names) {
        halyard_block_config c{};
        ASSERT_EQ(halyard_block_config_preset(name, &c), HALYARD_OK);
        expect_equal(halyard::BlockConfig::preset(name).get(), c);
    }
    EXPECT_THROW(halyard::BlockConfig::preset("t5"), halyard::Error);
}

/** Every tensor that a block can have, each with values of its own. */
struct Tensors {
    Values q = values(1, hidden *hidden), k = values(2, hidden *hidden), v = values(3, hidden *hidden),
           qkv = values(4, 3 * hidden * hidden), o = values(5, hidden *hidden), gate = values(6, ff *hidden),
           up = values(7, ff *hidden), down = values(8, hidden *ff);
    std::vector<Values> vectors;

    Tensors() {
        for (int i = 0; i < 20; i++) {
            vectors.push_back(values(20 + i, 3 * hidden));
        }
    }
    halyard::ConstTensor vector(std::size_t which, std::int64_t width) const { return {vectors[which], {width}}; }

    halyard::BlockWeights weights(bool joined) const {
        halyard::BlockWeights w;
        if (joined) {
            w.qkv_proj = {qkv, {3 * hidden, hidden}};
            w.qkv_proj_bias = vector(0, 3 * hidden);
        } else {
            w.q_proj = {q, {hidden, hidden}};
            w.k_proj = {k, {hidden, hidden}};
            w.v_proj = {v, {hidden, hidden}};
            w.q_proj_bias = vector(1, hidden);
            w.k_proj_bias = vector(2, hidden);
            w.v_proj_bias = vector(3, hidden);
        }
        w.o_proj = {o, {hidden, hidden}};
        w.o_proj_bias = vector(4, hidden);
        w.q_norm = vector(5, head_dim);
        w.k_norm = vector(6, head_dim);
        w.gate_proj = {gate, {ff, hidden}};
        w.up_proj = {up, {ff, hidden}};
        w.down_proj = {down, {hidden, ff}};
        w.gate_proj_bias = vector(7, ff);
        w.up_proj_bias = vector(8, ff);
        w.down_proj_bias = vector(9, hidden);
        w.attention_norm = vector(10, hidden);
        w.attention_norm_bias = vector(11, hidden);
        w.ffn_norm = vector(12, hidden);
        w.ffn_norm_bias = vector(13, hidden);
        w.attention_post_norm = vector(14, hidden);
        w.attention_post_norm_bias = vector(15, hidden);
        w.ffn_post_norm = vector(16, hidden);
        w.ffn_post_norm_bias = vector(17, hidden);
        return w;
    }
};

halyard::BlockConfig full_config() {
    halyard::BlockConfig config = halyard::BlockConfig::preset("qwen");
    config.hidden_size = hidden;
    config.intermediate_size = ff;
    config.num_attention_heads = heads;
    config.head_dim = head_dim;
    config.norm = halyard::Norm::layer;
    config.norm_placement = halyard::NormPlacement::sandwich;
    config.max_position_embeddings = 40;
    return config;
}

/** y of the C functions. */
Values c_result(const halyard::BlockConfig &config, const halyard::BlockWeights &w, const Values &x) {
    const halyard_block_config c = config.get();
    const halyard_block_weights weights = {static_cast<halyard_weight_layout>(w.layout),
                                           w.q_proj.get(),
                                           w.k_proj.get(),
                                           w.v_proj.get(),
                                           w.qkv_proj.get(),
                                           w.o_proj.get(),
                                           w.q_proj_bias.get(),
                                           w.k_proj_bias.get(),
                                           w.v_proj_bias.get(),
                                           w.qkv_proj_bias.get(),
                                           w.o_proj_bias.get(),
                                           w.q_norm.get(),
                                           w.k_norm.get(),
                                           w.gate_proj.get(),
                                           w.up_proj.get(),
                                           w.down_proj.get(),
                                           w.gate_proj_bias.get(),
                                           w.up_proj_bias.get(),
                                           w.down_proj_bias.get(),
                                           w.attention_norm.get(),
                                           w.attention_norm_bias.get(),
                                           w.ffn_norm.get(),
                                           w.ffn_norm_bias.get(),
                                           w.attention_post_norm.get(),
                                           w.attention_post_norm_bias.get(),
                                           w.ffn_post_norm.get(),
                                           w.ffn_post_norm_bias.get(),
                                           w.device,
                                           {},
                                           {},
                                           {}};
    halyard_block *block = nullptr;
    EXPECT_EQ(halyard_block_create(nullptr, &c, &weights, &block), HALYARD_OK) << halyard_last_error();
    Values y(x.size());
    const std::int64_t rows = static_cast<std::int64_t>(x.size()) / hidden;
    const halyard::ConstTensor xs(x, {rows, hidden});
    const halyard::Tensor ys(y, {rows, hidden});
    EXPECT_EQ(halyard_block_forward(nullptr, block, xs.get(), nullptr, 0, nullptr, ys.get()), HALYARD_OK)
        << halyard_last_error();
    halyard_block_destroy(block);
    return y;
}

TEST(CppBlock, PassesEveryTensorOn) {
    const Tensors tensors;
    const Values x = values(90, tokens * hidden);
    for (const bool joined : {false, true}) {
        const halyard::BlockWeights weights = tensors.weights(joined);
        const halyard::Block block(full_config(), weights);
        Values y(x.size());
        block.forward({x, {tokens, hidden}}, {y, {tokens, hidden}});
        EXPECT_EQ(y, c_result(full_config(), weights, x));
        EXPECT_EQ(block.config().num_key_value_heads, heads);
        EXPECT_EQ(block.config().rope.rotary_dim, head_dim);
        EXPECT_GT(block.bytes(), 4 * hidden * hidden);
    }
    // Square matrices of the other layout are their transposes.
    halyard::BlockWeights weights = tensors.weights(false);
    weights.layout = halyard::WeightLayout::in_out;
    weights.gate_proj = {tensors.gate, {hidden, ff}};
    weights.up_proj = {tensors.up, {hidden, ff}};
    weights.down_proj = {tensors.down, {ff, hidden}};
    Values y(x.size());
    halyard::Block(full_config(), weights).forward({x, {tokens, hidden}}, {y, {tokens, hidden}}, halyard::Context());
    EXPECT_EQ(y, c_result(full_config(), weights, x));
}

TEST(CppBlock, TakesOtherNumbers) {
    Tensors tensors;
    const Values x = values(90, tokens * hidden);
    halyard::Block block(full_config(), tensors.weights(false));
    for (Values *const matrix : {&tensors.q, &tensors.o, &tensors.down}) {
        std::reverse(matrix->begin(), matrix->end());
    }
    std::reverse(tensors.vectors.begin(), tensors.vectors.end());
    block.update(tensors.weights(false));
    Values y(x.size());
    block.forward({x, {tokens, hidden}}, {y, {tokens, hidden}});
    EXPECT_EQ(y, c_result(full_config(), tensors.weights(false), x));
}

/** Memory of the gradients, each of its own. */
struct GradientValues {
    std::vector<Values> all;

    halyard::BlockGradients gradients(bool joined, bool accumulate) {
        all.clear();
        all.reserve(32);
        const auto make = [&](std::initializer_list<std::int64_t> shape) {
            std::int64_t count = 1;
            for (const std::int64_t extent : shape) {
                count *= extent;
            }
            all.emplace_back(static_cast<std::size_t>(count), static_cast<float>(all.size()));
            return halyard::Tensor(all.back(), shape);
        };
        halyard::BlockGradients g;
        g.layout = halyard::WeightLayout::in_out;
        g.accumulate = accumulate;
        if (joined) {
            g.qkv_proj = make({hidden, 3 * hidden});
            g.qkv_proj_bias = make({3 * hidden});
        } else {
            g.q_proj = make({hidden, hidden});
            g.k_proj = make({hidden, hidden});
            g.v_proj = make({hidden, hidden});
            g.q_proj_bias = make({hidden});
            g.k_proj_bias = make({hidden});
            g.v_proj_bias = make({hidden});
        }
        g.o_proj = make({hidden, hidden});
        g.o_proj_bias = make({hidden});
        g.q_norm = make({head_dim});
        g.k_norm = make({head_dim});
        g.gate_proj = make({hidden, ff});
        g.up_proj = make({hidden, ff});
        g.down_proj = make({ff, hidden});
        g.gate_proj_bias = make({ff});
        g.up_proj_bias = make({ff});
        g.down_proj_bias = make({hidden});
        for (halyard::Tensor halyard::BlockGradients::*const norm :
             {&halyard::BlockGradients::attention_norm, &halyard::BlockGradients::attention_norm_bias,
              &halyard::BlockGradients::ffn_norm, &halyard::BlockGradients::ffn_norm_bias,
              &halyard::BlockGradients::attention_post_norm, &halyard::BlockGradients::attention_post_norm_bias,
              &halyard::BlockGradients::ffn_post_norm, &halyard::BlockGradients::ffn_post_norm_bias}) {
            g.*norm = make({hidden});
        }
        return g;
    }
};

TEST(CppBlock, PassesGradientsOn) {
    const Tensors tensors;
    const Values x = values(90, tokens * hidden), dy = values(91, tokens * hidden);
    const halyard::ConstTensor xs(x, {tokens, hidden}), dys(dy, {tokens, hidden});
    for (const bool joined : {false, true}) {
        const halyard::Block block(full_config(), tensors.weights(joined));
        const std::int64_t bytes = block.saved_bytes(1, tokens);
        std::vector<char> memory(static_cast<std::size_t>(bytes) + 64);
        void *saved = memory.data();
        std::size_t space = memory.size();
        ASSERT_NE(std::align(64, static_cast<std::size_t>(bytes), saved, space), nullptr);
        Values y(x.size()), dx(x.size()), plain(x.size());
        block.forward_saving(xs, saved, bytes, {y, {tokens, hidden}});
        block.forward(xs, {plain, {tokens, hidden}});
        EXPECT_EQ(y, plain);
        for (const bool accumulate : {false, true}) {
            GradientValues of_c, got;
            const halyard::BlockGradients gradients = of_c.gradients(joined, accumulate);
            const halyard_block_gradients c = gradients.get();
            Values dx_of_c(x.size());
            const halyard::Tensor dxs(dx_of_c, {tokens, hidden});
            ASSERT_EQ(halyard_block_backward(nullptr, block.get(), xs.get(), saved, bytes, dys.get(), &c, dxs.get()),
                      HALYARD_OK)
                << halyard_last_error();
            block.backward(xs, saved, bytes, dys, got.gradients(joined, accumulate), {dx, {tokens, hidden}});
            EXPECT_EQ(dx, dx_of_c);
            EXPECT_EQ(got.all, of_c.all);
            for (std::size_t i = 0; i < got.all.size(); i++) {  // all are written
                EXPECT_NE(got.all[i], Values(got.all[i].size(), static_cast<float>(i))) << i;
            }
        }
    }
}

/** A matrix of int8 codes with values of its own. */
struct Int8 {
    std::vector<std::int8_t> numbers;
    Values scales;
    halyard::Codes codes;

    Int8(int seed, std::int64_t out, std::int64_t in) : scales(static_cast<std::size_t>(out), 1 / 64.0f) {
        for (std::int64_t i = 0; i < out * in; i++) {
            numbers.push_back(static_cast<std::int8_t>((i * 7 + seed * 5) % 23 - 11));
        }
        codes.format = halyard::CodeFormat::int8;
        codes.in_features = in;
        codes.out_features = out;
        codes.matrix = {numbers.data(), {out, in}};
        codes.scales = scales;
    }
    Int8(const Int8 &) = delete;
    Int8 &operator=(const Int8 &) = delete;
    /** What a tensor of the same numbers makes. */
    halyard::ConstTensor dequantized() {
        values.resize(numbers.size());
        halyard::dequantize(codes, {values, {codes.out_features, codes.in_features}});
        return {values, {codes.out_features, codes.in_features}};
    }
    Values values;
};

TEST(CppBlock, PassesCodesAndPackedWeightsOn) {
    const Tensors tensors;
    Int8 q(1, hidden, hidden), k(2, hidden, hidden), v(3, hidden, hidden), qkv(4, 3 * hidden, hidden),
        o(5, hidden, hidden), gate(6, ff, hidden), up(7, ff, hidden), down(8, hidden, ff);
    const Values x = values(90, tokens * hidden);
    const auto result = [&](const halyard::BlockWeights &weights) {
        Values y(x.size());
        halyard::Block(full_config(), weights).forward({x, {tokens, hidden}}, {y, {tokens, hidden}});
        return y;
    };
    for (const bool joined : {false, true}) {
        const auto pack = [](const Int8 &matrix) { return halyard::Weights::pack_codes(matrix.codes); };
        const halyard::Weights packed[] = {pack(q),   pack(k), pack(v),
                                           pack(qkv), pack(o), halyard::Weights::pack_codes(gate.codes, &up.codes),
                                           pack(down)};
        halyard::BlockWeights of_codes = tensors.weights(joined);
        for (halyard::ConstTensor halyard::BlockWeights::*const matrix :
             {&halyard::BlockWeights::q_proj, &halyard::BlockWeights::k_proj, &halyard::BlockWeights::v_proj,
              &halyard::BlockWeights::qkv_proj, &halyard::BlockWeights::o_proj, &halyard::BlockWeights::gate_proj,
              &halyard::BlockWeights::up_proj, &halyard::BlockWeights::down_proj}) {
            of_codes.*matrix = {};
        }
        halyard::BlockWeights of_packed = of_codes, in_f32 = of_codes;
        if (joined) {
            of_codes.codes.qkv_proj = &qkv.codes;
            of_packed.packed.qkv_proj = &packed[3];
            in_f32.qkv_proj = qkv.dequantized();
        } else {
            of_codes.codes.q_proj = &q.codes;
            of_codes.codes.k_proj = &k.codes;
            of_codes.codes.v_proj = &v.codes;
            of_packed.packed.q_proj = &packed[0];
            of_packed.packed.k_proj = &packed[1];
            of_packed.packed.v_proj = &packed[2];
            in_f32.q_proj = q.dequantized();
            in_f32.k_proj = k.dequantized();
            in_f32.v_proj = v.dequantized();
        }
        of_codes.codes.o_proj = &o.codes;
        of_codes.codes.gate_proj = &gate.codes;
        of_codes.codes.up_proj = &up.codes;
        of_codes.codes.down_proj = &down.codes;
        of_packed.packed.o_proj = &packed[4];
        of_packed.packed.up_proj = &packed[5];
        of_packed.packed.down_proj = &packed[6];
        in_f32.o_proj = o.dequantized();
        in_f32.gate_proj = gate.dequantized();
        in_f32.up_proj = up.dequantized();
        in_f32.down_proj = down.dequantized();
        const Values y = result(of_codes), expected = result(in_f32);
        EXPECT_EQ(y, result(of_packed));
        for (std::size_t i = 0; i < y.size(); i++) {
            EXPECT_NEAR(y[i], expected[i], 1e-4f);
        }
    }
}

TEST(CppStack, TakesCodesAndPackedWeights) {
    const Tensors tensors;
    std::vector<halyard::Block> blocks;
    blocks.emplace_back(full_config(), tensors.weights(true));
    const Values embedding = values(60, vocab * hidden);
    Int8 head(9, vocab, hidden);
    const halyard::Weights packed = halyard::Weights::pack_codes(head.codes);
    halyard::StackConfig config;
    config.vocab_size = vocab;
    config.hidden_size = hidden;
    halyard::StackWeights weights;
    weights.embed_tokens = {embedding, {vocab, hidden}};
    const std::vector<std::int32_t> ids = {3, 1, 8};
    const auto logits = [&] {
        Values result(vocab);
        halyard::Stack(config, weights, blocks).forward(ids, result);
        return result;
    };
    const Values tied = logits();
    weights.lm_head_codes = &head.codes;
    const Values of_codes = logits();
    weights.lm_head_codes = nullptr;
    weights.lm_head_packed = &packed;
    EXPECT_EQ(logits(), of_codes);
    EXPECT_NE(tied, of_codes);
    // A table in codes is one of GGUF.
    weights.embed_tokens = {};
    weights.embed_tokens_codes = &head.codes;
    EXPECT_THROW(logits(), halyard::Error);
}

TEST(CppBlock, IsMovedAndRefusesWhatItMust) {
    const Tensors tensors;
    const Values x = values(91, tokens * hidden);
    Values y(x.size());
    halyard::Block block(full_config(), tensors.weights(true));
    const halyard_block *const c = block.get();
    const halyard::Block moved = std::move(block);
    EXPECT_EQ(moved.get(), c);
    EXPECT_TRUE(moved);
    EXPECT_FALSE(block);  // NOLINT: moved from
    EXPECT_THROW(block.forward({x, {tokens, hidden}}, {y, {tokens, hidden}}), halyard::Error);
    EXPECT_THROW(block.config(), halyard::Error);
    EXPECT_THROW(moved.forward({x, {hidden, tokens}}, {y, {hidden, tokens}}), halyard::Error);
    EXPECT_THROW(halyard::Block(full_config(), {}), halyard::Error);
    halyard::KvCache none;
    EXPECT_THROW(moved.forward({x, {tokens, hidden}}, none, 0, {y, {tokens, hidden}}), halyard::Error);
}

halyard::KvCache cache_for(std::int64_t layers, std::int64_t sequences) {
    halyard::KvCacheOptions options;
    options.n_layers = layers;
    options.n_sequences = sequences;
    options.n_kv_heads = heads;
    options.head_dim = head_dim;
    options.max_positions = 30;
    return halyard::KvCache(options);
}

TEST(CppBlock, TakesACache) {
    const Tensors tensors;
    const halyard::Block block(full_config(), tensors.weights(false));
    const Values x = values(92, 2 * tokens * hidden);
    Values whole(x.size()), y(x.size());
    block.forward({x, {2, tokens, hidden}}, {whole, {2, tokens, hidden}});
    halyard::KvCache cache = cache_for(2, 3);
    const halyard::Extents shape = {2, 2, hidden}, rest = {2, tokens - 2, hidden},
                           strides = {tokens * hidden, hidden, 1};
    block.forward({x, shape, strides}, cache, 1, {2, 0}, {y, shape, strides});
    EXPECT_EQ(cache.length(1, 2), 2);
    EXPECT_EQ(cache.length(1, 1), 0);
    const std::array<std::int64_t, 2> order = {2, 0};
    block.forward({x.data() + 2 * hidden, rest, strides}, cache, 1, order, {y.data() + 2 * hidden, rest, strides});
    EXPECT_EQ(y, whole);
    EXPECT_EQ(cache.length(1, 0), tokens);
    EXPECT_EQ(cache.length(0, 0), 0);
    block.forward({x, {tokens, hidden}}, cache, 0, {y, {tokens, hidden}});
    EXPECT_EQ(cache.length(0, 0), tokens);
    // One for each index of the batch.
    EXPECT_THROW(block.forward({x, {2, tokens, hidden}}, cache, 0, {1}, {y, {2, tokens, hidden}}), halyard::Error);
    EXPECT_THROW(block.forward({x, {tokens, hidden}}, cache, 0, {1, 2}, {y, {tokens, hidden}}), halyard::Error);
}

TEST(CppStack, PassesGradientsAndOtherNumbersOn) {
    Tensors tensors;
    std::vector<halyard::Block> blocks;
    blocks.emplace_back(full_config(), tensors.weights(false));
    blocks.emplace_back(full_config(), tensors.weights(true));
    Values embedding = values(60, vocab * hidden), positions = values(61, 20 * hidden), types = values(65, 2 * hidden),
           norm = values(62, hidden), norm_bias = values(63, hidden), lm_head = values(64, vocab * hidden);
    halyard::StackConfig config;
    config.vocab_size = vocab;
    config.hidden_size = hidden;
    config.norm = config.embed_norm = halyard::Norm::layer;
    config.rms_norm_eps = 1e-3f;
    halyard::StackWeights weights;
    weights.embed_tokens = {embedding, {vocab, hidden}};
    weights.embed_positions = {positions, {20, hidden}};
    weights.embed_types = {types, {2, hidden}};
    weights.embed_norm = weights.norm = norm;
    weights.embed_norm_bias = weights.norm_bias = norm_bias;
    weights.lm_head = {lm_head, {vocab, hidden}};
    halyard::Stack stack(config, weights, blocks);

    const std::vector<std::int32_t> ids = {3, 1, 8, 0, 5}, kinds = {0, 1, 1, 0, 1};
    const std::int64_t bytes = stack.saved_bytes(1, tokens);
    std::vector<char> memory(static_cast<std::size_t>(bytes) + 64);
    void *saved = memory.data();
    std::size_t space = memory.size();
    ASSERT_NE(std::align(64, static_cast<std::size_t>(bytes), saved, space), nullptr);
    Values logits(tokens * vocab);
    const Values dlogits = values(66, tokens * vocab);
    stack.forward_saving(ids, kinds, saved, bytes, {logits, {tokens, vocab}});

    const auto run = [&](bool with_c, GradientValues(&of_blocks)[2]) {
        std::vector<Values> all;
        for (const std::int64_t rows : {vocab, std::int64_t{20}, std::int64_t{2}, vocab}) {
            all.emplace_back(static_cast<std::size_t>(rows * hidden), 1.0f);
        }
        all.resize(8, Values(hidden, 1.0f));
        halyard::StackGradients g;
        g.accumulate = true;
        g.embed_tokens = {all[0], {vocab, hidden}};
        g.embed_positions = {all[1], {20, hidden}};
        g.embed_types = {all[2], {2, hidden}};
        g.lm_head = {all[3], {vocab, hidden}};
        g.embed_norm = all[4];
        g.embed_norm_bias = all[5];
        g.norm = all[6];
        g.norm_bias = all[7];
        g.blocks = {of_blocks[0].gradients(false, true), of_blocks[1].gradients(true, false)};
        if (!with_c) {
            stack.backward(ids, kinds, saved, bytes, {dlogits, {tokens, vocab}}, g);
            return all;
        }
        const halyard_block_gradients c_blocks[] = {g.blocks[0].get(), g.blocks[1].get()};
        const halyard_stack_gradients c = {1,
                                           g.embed_tokens.get(),
                                           g.embed_positions.get(),
                                           g.embed_types.get(),
                                           g.embed_norm.get(),
                                           g.embed_norm_bias.get(),
                                           g.norm.get(),
                                           g.norm_bias.get(),
                                           g.lm_head.get(),
                                           c_blocks};
        const halyard::TokenIds id_tensor(ids), kind_tensor(kinds);
        const halyard::ConstTensor dresult(dlogits, {tokens, vocab});
        EXPECT_EQ(halyard_stack_backward(nullptr, stack.get(), id_tensor.get(), kind_tensor.get(), saved, bytes,
                                         dresult.get(), &c),
                  HALYARD_OK)
            << halyard_last_error();
        return all;
    };
    GradientValues of_c[2], got[2];
    EXPECT_EQ(run(true, of_c), run(false, got));
    EXPECT_EQ(of_c[0].all, got[0].all);
    EXPECT_EQ(of_c[1].all, got[1].all);

    for (Values *const each : {&embedding, &norm, &lm_head}) {
        std::reverse(each->begin(), each->end());
    }
    stack.update(weights);
    Values changed(tokens * vocab), anew(tokens * vocab);
    stack.forward_all(ids, {changed, {tokens, vocab}});
    halyard::Stack(config, weights, blocks).forward_all(ids, {anew, {tokens, vocab}});
    EXPECT_EQ(changed, anew);
    EXPECT_NE(changed, logits);
}

TEST(CppStack, DoesWhatTheCFunctionsDo) {
    const Tensors tensors;
    std::vector<halyard::Block> blocks;
    blocks.emplace_back(full_config(), tensors.weights(false));
    blocks.emplace_back(full_config(), tensors.weights(true));
    const Values embedding = values(60, vocab * hidden), positions = values(61, 20 * hidden), norm = values(62, hidden),
                 norm_bias = values(63, hidden), lm_head = values(64, vocab * hidden), types = values(65, 2 * hidden);
    halyard::StackConfig config;
    config.vocab_size = vocab;
    config.hidden_size = hidden;
    config.embedding_multiplier = 2;
    config.norm = halyard::Norm::layer;
    config.rms_norm_eps = 1e-3f;
    config.final_logit_softcapping = 4;
    halyard::StackWeights weights;
    weights.embed_tokens = {embedding, {vocab, hidden}};
    weights.embed_positions = {positions, {20, hidden}};
    weights.embed_types = {types, {2, hidden}};
    weights.norm = norm;
    weights.norm_bias = norm_bias;
    weights.lm_head = {lm_head, {vocab, hidden}};
    const halyard::Stack stack(config, weights, blocks);

    halyard_stack_config c{};
    c.vocab_size = vocab;
    c.hidden_size = hidden;
    c.embedding_multiplier = 2;
    c.norm = HALYARD_NORM_LAYER;
    c.rms_norm_eps = 1e-3f;
    c.final_logit_softcapping = 4;
    halyard_stack_weights w{};
    w.embed_tokens = weights.embed_tokens.get();
    w.embed_positions = weights.embed_positions.get();
    w.embed_types = weights.embed_types.get();
    w.norm = weights.norm.get();
    w.norm_bias = weights.norm_bias.get();
    w.lm_head = weights.lm_head.get();
    const halyard_block *const layers[] = {blocks[0].get(), blocks[1].get()};
    halyard_stack *c_stack = nullptr;
    ASSERT_EQ(halyard_stack_create(nullptr, &c, &w, layers, 2, &c_stack), HALYARD_OK) << halyard_last_error();

    const std::vector<std::int32_t> ids = {3, 1, 8, 0, 5};
    Values expected(tokens * vocab), all(tokens * vocab);
    const halyard::TokenIds id_tensor(ids);
    halyard_stack_options options{};
    options.all_logits = 1;
    const halyard::Tensor expected_view(expected, {tokens, vocab});
    ASSERT_EQ(halyard_stack_forward(nullptr, c_stack, id_tensor.get(), nullptr, nullptr, &options, expected_view.get()),
              HALYARD_OK)
        << halyard_last_error();
    halyard_stack_destroy(c_stack);

    stack.forward_all(ids, {all, {tokens, vocab}});
    EXPECT_EQ(all, expected);
    const Values last_row(expected.end() - vocab, expected.end());
    Values last(vocab);
    stack.forward(ids, last);
    EXPECT_EQ(last, last_row);

    // Through a cache, in two parts, in another sequence than the first.
    halyard::KvCache cache = cache_for(2, 2);
    Values first(3 * vocab);
    stack.forward_all({ids.data(), {3}}, cache, {1}, {first, {3, vocab}}, halyard::Context());
    EXPECT_EQ(first, Values(expected.begin(), expected.begin() + 3 * vocab));
    last.assign(vocab, 0);
    stack.forward({ids.data() + 3, {2}}, cache, {1}, last);
    EXPECT_EQ(last, last_row);
    EXPECT_EQ(cache.length(1, 1), tokens);
    EXPECT_EQ(cache.length(1, 0), 0);
    stack.forward(ids, cache, last);
    EXPECT_EQ(last, last_row);
    EXPECT_EQ(cache.length(0, 0), tokens);
    Values two(2 * vocab);
    EXPECT_THROW(stack.forward({ids.data(), {2, 2}}, cache, {1}, {two, {2, vocab}}), halyard::Error);
    halyard::KvCache none;
    EXPECT_THROW(stack.forward(ids, none, last), halyard::Error);

    std::vector<std::int64_t> seen;
    all.assign(all.size(), 0);
    stack.observe(ids,
                  [&](std::int64_t layer, std::int64_t first_token, const halyard::ConstTensor &stream) {
                      EXPECT_EQ(first_token, 0);
                      EXPECT_EQ(stream.get()->shape[2], hidden);
                      if (layer == 0) {
                          const auto *const x = static_cast<const float *>(stream.get()->data);
                          EXPECT_EQ(x[2 * hidden + 1],
                                    2 * embedding[8 * hidden + 1] + positions[2 * hidden + 1] + types[1]);
                      }
                      seen.push_back(layer);
                  },
                  {all, {tokens, vocab}});
    EXPECT_EQ(seen, (std::vector<std::int64_t>{0, 1, 2, 3}));
    EXPECT_EQ(all, expected);

    EXPECT_EQ(stack.config().vocab_size, vocab);
    EXPECT_EQ(stack.config().norm, halyard::Norm::layer);
    EXPECT_EQ(stack.config().final_logit_softcapping, 4);
    EXPECT_TRUE(stack);
    EXPECT_FALSE(halyard::Stack());
    EXPECT_THROW(halyard::Stack().forward(ids, last), halyard::Error);
    EXPECT_THROW(halyard::Stack(config, {}, blocks), halyard::Error);
    // Tied: the embedding is the projection.
    weights.lm_head = {};
    const halyard::Stack tied(config, weights, blocks);
    weights.lm_head = weights.embed_tokens;
    const halyard::Stack untied(config, weights, blocks);
    Values other(vocab);
    tied.forward(ids, last);
    untied.forward(ids, other);
    EXPECT_EQ(last, other);

    // Hidden states of a stack that ends with them, its embedding normalized.
    weights.lm_head = {};
    weights.embed_norm = norm;
    weights.embed_norm_bias = norm_bias;
    config.embed_norm = halyard::Norm::layer;
    config.no_lm_head = true;
    const halyard::Stack encoder(config, weights, blocks);
    EXPECT_EQ(encoder.config().embed_norm, halyard::Norm::layer);
    EXPECT_TRUE(encoder.config().no_lm_head);
    EXPECT_THROW(encoder.forward(ids, last), halyard::Error);
    const std::vector<std::int64_t> kinds = {0, 1, 1, 0, 1};
    Values states(tokens * hidden), c_states(tokens * hidden), of_one_kind(tokens * hidden);
    encoder.hidden_states(ids, kinds, {states, {tokens, hidden}});
    encoder.hidden_states(ids, {}, {of_one_kind, {tokens, hidden}});
    const halyard::TokenIds kind_tensor(kinds);
    options.token_types = kind_tensor.get();
    const halyard::Tensor c_view(c_states, {tokens, hidden});
    ASSERT_EQ(
        halyard_stack_hidden_states(nullptr, encoder.get(), id_tensor.get(), nullptr, nullptr, &options, c_view.get()),
        HALYARD_OK)
        << halyard_last_error();
    EXPECT_EQ(states, c_states);
    EXPECT_NE(states, of_one_kind);
}

}  // namespace
