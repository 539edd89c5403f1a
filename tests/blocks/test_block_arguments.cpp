// Every bad argument of blocks: the call fails with the right kind of status, the message names the function
// and the argument, and nothing is written or appended.
#include "support/small_block.h"
#include "support/stack.h"

#include <cmath>
#include <cstring>

namespace halyard::tests {
namespace {

// ---- Making blocks -----------------------------------------------------------------------------------------------

/** What halyard_block_create gets, to be spoiled. */
struct Making {
    halyard_block_config &c;
    halyard_block_weights &w;
    Tensor &other;  // [3, 5], f16
    const halyard_block_config *config = &c;
    const halyard_block_weights *weights = &w;
    bool no_result = false;

    static DLTensor &spoil(const DLTensor *tensor) { return const_cast<DLTensor &>(*tensor); }
    static void narrow(const DLTensor *tensor, int axis) { spoil(tensor).shape[axis]--; }
    void layer_norm() {
        c.norm = HALYARD_NORM_LAYER;
        w.attention_norm_bias = w.ffn_norm_bias = w.attention_norm;
    }
    void join() {
        w.qkv_proj = w.q_proj;
        w.q_proj = w.k_proj = w.v_proj = nullptr;
    }
};

struct MakingMistake {
    const char *what, *arguments;
    halyard_status status;
    void (*make)(Making &);
};

const MakingMistake making_mistakes[] = {
    {"null", "config", invalid, [](Making &m) { m.config = nullptr; }},
    {"null", "weights", invalid, [](Making &m) { m.weights = nullptr; }},
    {"null", "block", invalid, [](Making &m) { m.no_result = true; }},
    // The configuration.
    {"0", "hidden_size", invalid, [](Making &m) { m.c.hidden_size = 0; }},
    {"negative", "hidden_size", invalid, [](Making &m) { m.c.hidden_size = -32; }},
    {"huge", "hidden_size", invalid, [](Making &m) { m.c.hidden_size = std::int64_t{1} << 40; }},
    {"0", "intermediate_size", invalid, [](Making &m) { m.c.intermediate_size = 0; }},
    {"huge", "intermediate_size", invalid, [](Making &m) { m.c.intermediate_size = std::int64_t{1} << 40; }},
    {"0", "num_attention_heads", invalid, [](Making &m) { m.c.num_attention_heads = 0; }},
    {"huge", "num_attention_heads", invalid, [](Making &m) { m.c.num_attention_heads = INT64_MAX; }},
    {"negative", "num_key_value_heads", invalid, [](Making &m) { m.c.num_key_value_heads = -2; }},
    {"no divisor", "num_key_value_heads", invalid, [](Making &m) { m.c.num_key_value_heads = 3; }},
    {"more than heads", "num_key_value_heads", invalid, [](Making &m) { m.c.num_key_value_heads = 8; }},
    {"no divisor of hidden_size", "num_attention_heads", invalid,
     [](Making &m) {
         m.c.num_attention_heads = 6;
         m.c.num_key_value_heads = 0;
     }},
    {"negative", "head_dim", invalid, [](Making &m) { m.c.head_dim = -8; }},
    {"257", "head_dim", invalid, [](Making &m) { m.c.head_dim = 257; }},
    {"too many features", "head_dim", invalid,
     [](Making &m) {
         m.c.num_attention_heads = std::int64_t{1} << 30;
         m.c.num_key_value_heads = 1;
         m.c.head_dim = 256;
     }},
    {"odd with a rotary embedding", "head_dim", invalid, [](Making &m) { m.c.head_dim = 7; }},
    {"unknown", "norm", invalid, [](Making &m) { m.c.norm = static_cast<halyard_norm>(3); }},
    {"unknown", "norm_placement", invalid,
     [](Making &m) {
         const int five = 5;
         std::memcpy(&m.c.norm_placement, &five, sizeof five);
     }},
    {"negative", "rms_norm_eps", invalid, [](Making &m) { m.c.rms_norm_eps = -1e-6f; }},
    {"NaN", "rms_norm_eps", invalid, [](Making &m) { m.c.rms_norm_eps = NAN; }},
    {"unknown bits", "norm_flags", invalid, [](Making &m) { m.c.norm_flags = 8; }},
    {"of no norm", "norm_flags", invalid,
     [](Making &m) {
         m.layer_norm();
         m.w.q_norm = m.w.k_norm = nullptr;
         m.c.norm_flags = HALYARD_RMS_UNIT_OFFSET;
     }},
    {"unknown", "hidden_act", invalid, [](Making &m) { m.c.hidden_act = static_cast<halyard_activation>(1000); }},
    {"infinite", "swish_beta", invalid,
     [](Making &m) {
         m.c.hidden_act = HALYARD_SWISH;
         m.c.swish_beta = INFINITY;
     }},
    {"too large", "swish_beta", invalid,
     [](Making &m) {
         m.c.hidden_act = HALYARD_SWISH;
         m.c.swish_beta = 1e29f;
     }},
    {"negative", "sliding_window", invalid, [](Making &m) { m.c.sliding_window = -1; }},
    {"negative", "query_pre_attn_scalar", invalid, [](Making &m) { m.c.query_pre_attn_scalar = -8; }},
    {"infinite", "query_pre_attn_scalar", invalid, [](Making &m) { m.c.query_pre_attn_scalar = INFINITY; }},
    {"negative", "attn_logit_softcapping", invalid, [](Making &m) { m.c.attn_logit_softcapping = -1; }},
    {"NaN", "attn_logit_softcapping", invalid, [](Making &m) { m.c.attn_logit_softcapping = NAN; }},
    {"too small", "attn_logit_softcapping", invalid, [](Making &m) { m.c.attn_logit_softcapping = 1e-31f; }},
    {"too large", "attn_logit_softcapping", invalid, [](Making &m) { m.c.attn_logit_softcapping = 1e31f; }},
    {"0 with a rotary embedding", "max_position_embeddings", invalid,
     [](Making &m) { m.c.max_position_embeddings = 0; }},
    {"negative", "max_position_embeddings", invalid, [](Making &m) { m.c.max_position_embeddings = -1; }},
    {"too many", "max_positions", invalid, [](Making &m) { m.c.max_position_embeddings = std::int64_t{1} << 25; }},
    {"most", "max_positions", invalid, [](Making &m) { m.c.max_position_embeddings = INT64_MAX; }},
    {"another", "max_positions", invalid, [](Making &m) { m.c.rope.max_positions = 21; }},
    {"another", "rope.head_dim", invalid, [](Making &m) { m.c.rope.head_dim = 6; }},
    {"odd", "rotary_dim", invalid, [](Making &m) { m.c.rope.rotary_dim = 3; }},
    {"beyond head_dim", "rotary_dim", invalid, [](Making &m) { m.c.rope.rotary_dim = 10; }},
    {"below 1", "rope_theta", invalid, [](Making &m) { m.c.rope.rope_theta = 0.5; }},
    {"NaN", "rope_theta", invalid, [](Making &m) { m.c.rope.rope_theta = NAN; }},
    {"below 1", "factor", invalid, [](Making &m) { m.c.rope.scaling = HALYARD_ROPE_LINEAR; }},
    // The tensors.
    {"unknown", "layout", invalid,
     [](Making &m) {
         const int two = 2;
         std::memcpy(&m.w.layout, &two, sizeof two);
     }},
    {"null", "q_proj", invalid, [](Making &m) { m.w.q_proj = nullptr; }},
    {"null", "k_proj", invalid, [](Making &m) { m.w.k_proj = nullptr; }},
    {"null", "v_proj", invalid, [](Making &m) { m.w.v_proj = nullptr; }},
    {"beside qkv_proj", "q_proj", invalid, [](Making &m) { m.w.qkv_proj = m.w.q_proj; }},
    {"beside qkv_proj", "v_proj", invalid,
     [](Making &m) {
         const DLTensor *const v = m.w.v_proj;
         m.join();
         m.w.v_proj = v;
     }},
    {"that of q alone", "qkv_proj", invalid, [](Making &m) { m.join(); }},
    {"beside qkv_proj", "k_proj_bias", invalid,
     [](Making &m) {
         m.join();
         m.w.k_proj_bias = m.w.q_norm;
     }},
    {"without qkv_proj", "qkv_proj_bias", invalid, [](Making &m) { m.w.qkv_proj_bias = m.w.q_norm; }},
    {"null", "o_proj", invalid, [](Making &m) { m.w.o_proj = nullptr; }},
    {"null", "gate_proj", invalid, [](Making &m) { m.w.gate_proj = nullptr; }},
    {"not gated", "gate_proj", invalid, [](Making &m) { m.c.gated_mlp = 0; }},
    {"not gated", "gate_proj_bias", invalid,
     [](Making &m) {
         m.c.gated_mlp = 0;
         m.w.gate_proj_bias = m.w.gate_proj;
         m.w.gate_proj = nullptr;
     }},
    {"null", "up_proj", invalid, [](Making &m) { m.w.up_proj = nullptr; }},
    {"null", "down_proj", invalid, [](Making &m) { m.w.down_proj = nullptr; }},
    {"an output less", "q_proj", invalid, [](Making &m) { Making::narrow(m.w.q_proj, 0); }},
    {"an output less", "k_proj", invalid, [](Making &m) { Making::narrow(m.w.k_proj, 0); }},
    {"an input less", "v_proj", invalid, [](Making &m) { Making::narrow(m.w.v_proj, 1); }},
    {"an output less", "o_proj", invalid, [](Making &m) { Making::narrow(m.w.o_proj, 0); }},
    {"an input less", "gate_proj", invalid, [](Making &m) { Making::narrow(m.w.gate_proj, 1); }},
    {"an output less", "up_proj", invalid, [](Making &m) { Making::narrow(m.w.up_proj, 0); }},
    {"an input less", "down_proj", invalid, [](Making &m) { Making::narrow(m.w.down_proj, 1); }},
    {"the other layout", "k_proj", invalid,
     [](Making &m) {
         m.w.layout = HALYARD_WEIGHT_IN_OUT;
         m.w.q_proj = m.w.o_proj;  // square
     }},
    {"no matrix", "q_proj", invalid, [](Making &m) { Making::spoil(m.w.q_proj).ndim = 1; }},
    {"null data", "k_proj", invalid, [](Making &m) { Making::spoil(m.w.k_proj).data = nullptr; }},
    {"CUDA", "v_proj", unsupported, [](Making &m) { Making::spoil(m.w.v_proj).device.device_type = kDLCUDA; }},
    {"for Vulkan", "device", unsupported, [](Making &m) { m.w.device = {kDLVulkan, 0}; }},
    {"int32", "up_proj", unsupported, [](Making &m) { Making::spoil(m.w.up_proj).dtype.code = kDLInt; }},
    {"f16 beside f32", "o_proj", unsupported,
     [](Making &m) { Making::spoil(m.w.o_proj).dtype = dlpack_type(Dtype::f16); }},
    {"f16 beside f32", "down_proj", unsupported,
     [](Making &m) { Making::spoil(m.w.down_proj).dtype = dlpack_type(Dtype::f16); }},
    {"of the wrong width", "q_proj_bias", invalid, [](Making &m) { m.w.q_proj_bias = &m.other.view; }},
    {"of the wrong width", "k_proj_bias", invalid, [](Making &m) { m.w.k_proj_bias = m.w.attention_norm; }},
    {"of the wrong width", "v_proj_bias", invalid, [](Making &m) { m.w.v_proj_bias = m.w.attention_norm; }},
    {"of the wrong width", "o_proj_bias", invalid, [](Making &m) { m.w.o_proj_bias = m.w.q_norm; }},
    {"of the wrong width", "gate_proj_bias", invalid, [](Making &m) { m.w.gate_proj_bias = m.w.attention_norm; }},
    {"of the wrong width", "up_proj_bias", invalid, [](Making &m) { m.w.up_proj_bias = m.w.attention_norm; }},
    {"of the wrong width", "down_proj_bias", invalid, [](Making &m) { m.w.down_proj_bias = m.w.q_norm; }},
    {"of the wrong width", "q_norm", invalid, [](Making &m) { m.w.q_norm = m.w.attention_norm; }},
    {"of the wrong width", "k_norm", invalid, [](Making &m) { m.w.k_norm = m.w.attention_norm; }},
    {"a feature less", "attention_norm", invalid, [](Making &m) { Making::narrow(m.w.attention_norm, 0); }},
    {"int32", "attention_norm", unsupported, [](Making &m) { Making::spoil(m.w.attention_norm).dtype.code = kDLInt; }},
    {"of the wrong width", "ffn_norm", invalid, [](Making &m) { m.w.ffn_norm = m.w.q_norm; }},
    {"of an RMSNorm", "attention_norm_bias", invalid, [](Making &m) { m.w.attention_norm_bias = m.w.attention_norm; }},
    {"of an RMSNorm", "ffn_norm_bias", invalid, [](Making &m) { m.w.ffn_norm_bias = m.w.attention_norm; }},
    {"of the wrong width", "ffn_norm_bias", invalid,
     [](Making &m) {
         m.layer_norm();
         m.w.ffn_norm_bias = m.w.q_norm;
     }},
    {"without a norm", "attention_norm", invalid, [](Making &m) { m.c.norm = HALYARD_NORM_NONE; }},
    {"without a second norm", "attention_post_norm", invalid,
     [](Making &m) { m.w.attention_post_norm = m.w.attention_norm; }},
    {"without a second norm", "ffn_post_norm", invalid, [](Making &m) { m.w.ffn_post_norm = m.w.attention_norm; }},
    {"without a second norm", "ffn_post_norm_bias", invalid,
     [](Making &m) {
         m.layer_norm();
         m.w.ffn_post_norm_bias = m.w.attention_norm;
     }},
    {"of the wrong width", "ffn_post_norm", invalid,
     [](Making &m) {
         m.c.norm_placement = HALYARD_SANDWICH_NORM;
         m.w.ffn_post_norm = m.w.q_norm;
     }},
};

TEST(BlockArguments, OfMakingABlock) {
    for (const MakingMistake &mistake : making_mistakes) {
        BlockTensors tensors(good_form());
        Tensor other(Dtype::f16, compact_form({3, 5}));
        halyard_block_config config = tensors.form.config;
        Making making = {config, tensors.weights, other};
        mistake.make(making);
        auto *const untouched = reinterpret_cast<halyard_block *>(&making);
        halyard_block *block = untouched;
        const halyard_status status =
            halyard_block_create(nullptr, making.config, making.weights, making.no_result ? nullptr : &block);
        EXPECT_TRUE(refused(status, mistake.status, "halyard_block_create", mistake.arguments)) << mistake.what;
        EXPECT_EQ(block, untouched) << mistake.what;
    }
    // What the mistakes were made of is in order.
    const Block good(good_form());
    EXPECT_NE(good.get(), nullptr);
    halyard_block_config config;
    EXPECT_TRUE(refused(halyard_block_get_config(nullptr, &config), invalid, "halyard_block_get_config", "block"));
    EXPECT_TRUE(refused(halyard_block_get_config(good.get(), nullptr), invalid, "halyard_block_get_config", "config"));
}

TEST(BlockArguments, MessagesSayWhatIsAndWhatMustBe) {
    BlockTensors tensors(good_form());
    halyard_block *block = nullptr;
    Making::narrow(tensors.weights.k_proj, 0);
    EXPECT_NE(halyard_block_create(nullptr, &tensors.form.config, &tensors.weights, &block), HALYARD_OK);
    EXPECT_STREQ(halyard_last_error(),
                 "halyard_block_create: k_proj is [15, 32], but must be [16, 32] (layout is [out, in])");
    BlockForm form = good_form();
    form.config.num_key_value_heads = 3;
    EXPECT_NE(halyard_block_create(nullptr, &form.config, &tensors.weights, &block), HALYARD_OK);
    EXPECT_STREQ(halyard_last_error(), "halyard_block_create: num_key_value_heads is 3, but must be 0 or divide "
                                       "num_attention_heads, which is 4");
}

// ---- Calling blocks ----------------------------------------------------------------------------------------------

/** A call with a cache of 3 layers, 4 sequences and 16 positions, of which 5 are filled in layer 1. */
struct Calling {
    Calling() : block(good_form()), cache(good_form(), Dtype::f32, 3, 4, 16) {
        fill_rows(x, 1);
        Tensor before(Dtype::f32, compact_form({4, 5, width})), after(Dtype::f32, compact_form({4, 5, width}));
        fill_rows(before, 2);
        EXPECT_EQ(halyard_block_forward(nullptr, block.get(), &before.view, cache.get(), 1, nullptr, &after.view),
                  HALYARD_OK)
            << halyard_last_error();
    }

    const Block block;
    const BlockCache cache;
    Tensor x{Dtype::f32, compact_form({2, 3, width})}, y{Dtype::f32, compact_form({2, 3, width})};
    const halyard_block *used_block = block.get();
    halyard_kv_cache *used_cache = cache.get();
    std::int64_t layer = 1;
    std::int64_t sequences[2] = {3, 1};
    DLTensor *xs = &x.view, *ys = &y.view;
    std::int64_t shape[4] = {}, strides[4] = {};
    std::unique_ptr<Block> other_block;
    std::unique_ptr<BlockCache> other_cache;

    void use_block(const BlockForm &form) {
        other_block = std::make_unique<Block>(form);
        used_block = other_block->get();
    }
    void use_cache(const halyard_kv_cache_options &options) {
        other_cache = std::make_unique<BlockCache>(options);
        used_cache = other_cache->get();
    }
    /** Both x and y, in the place of x. */
    void reshape(std::initializer_list<std::int64_t> extents) {
        std::copy(extents.begin(), extents.end(), shape);
        for (DLTensor *tensor : {xs, ys}) {
            tensor->ndim = static_cast<int>(extents.size());
            tensor->shape = shape;
        }
    }
};

struct CallingMistake {
    const char *what, *arguments;
    halyard_status status;
    void (*make)(Calling &);
};

const CallingMistake calling_mistakes[] = {
    {"null", "block", invalid, [](Calling &c) { c.used_block = nullptr; }},
    {"null", "x", invalid, [](Calling &c) { c.xs = nullptr; }},
    {"null", "y", invalid, [](Calling &c) { c.ys = nullptr; }},
    {"null data", "x", invalid, [](Calling &c) { c.xs->data = nullptr; }},
    {"null data", "y", invalid, [](Calling &c) { c.ys->data = nullptr; }},
    {"CUDA", "x", unsupported, [](Calling &c) { c.xs->device.device_type = kDLCUDA; }},
    {"int32", "x", unsupported, [](Calling &c) { c.xs->dtype.code = kDLInt; }},
    {"f16 beside f32", "y", unsupported, [](Calling &c) { c.ys->dtype = dlpack_type(Dtype::f16); }},
    {"rank 1", "x", invalid, [](Calling &c) { c.reshape({width}); }},
    {"rank 4", "x", invalid,
     [](Calling &c) {
         c.reshape({1, 2, 3, width});
     }},
    {"a feature less", "x", invalid,
     [](Calling &c) {
         c.reshape({2, 3, width - 1});
     }},
    {"a token less", "y", invalid, [](Calling &c) { c.ys->shape[1]--; }},
    {"a sequence less", "y", invalid, [](Calling &c) { c.ys->shape[0]--; }},
    {"spread features", "x", invalid,
     [](Calling &c) {
         c.strides[0] = 6 * width;
         c.strides[1] = 2 * width;
         c.strides[2] = 2;
         c.xs->strides = c.strides;
     }},
    {"rows in one place", "y", invalid,
     [](Calling &c) {
         c.strides[2] = 1;
         c.ys->strides = c.strides;
     }},
    {"is x one row on", "y", invalid, [](Calling &c) { c.ys->data = c.x.at(1, 0); }},
    {"is x one element on", "y", invalid, [](Calling &c) { c.ys->data = c.x.at(0, 1); }},
    {"below 0", "layer", invalid, [](Calling &c) { c.layer = -1; }},
    {"beyond the last", "layer", invalid, [](Calling &c) { c.layer = 3; }},
    {"below 0", "sequences", invalid, [](Calling &c) { c.sequences[1] = -1; }},
    {"beyond the last", "sequences", invalid, [](Calling &c) { c.sequences[0] = 4; }},
    {"twice the same", "sequences", invalid, [](Calling &c) { c.sequences[0] = 1; }},
    {"too few sequences", "cache", invalid,
     [](Calling &c) {
         c.use_cache({3, 1, kv_heads, head_dim, 16, dlpack_type(Dtype::f32)});
     }},
    {"other heads", "cache", invalid,
     [](Calling &c) {
         c.use_cache({3, 4, 1, head_dim, 16, dlpack_type(Dtype::f32)});
     }},
    {"other head_dim", "cache", invalid,
     [](Calling &c) {
         c.use_cache({3, 4, kv_heads, 16, 16, dlpack_type(Dtype::f32)});
     }},
    {"no room", "cache", invalid,
     [](Calling &c) {
         c.use_cache({3, 4, kv_heads, head_dim, 2, dlpack_type(Dtype::f32)});
     }},
    {"not causal", "block", invalid,
     [](Calling &c) {
         BlockForm form = good_form();
         form.config.causal = 0;
         c.use_block(form);
     }},
    {"no angles for it", "max_position_embeddings", invalid,
     [](Calling &c) {
         BlockForm form = good_form();
         form.config.max_position_embeddings = 7;
         c.use_block(form);
     }},
};

TEST(BlockArguments, OfCallingABlock) {
    for (const CallingMistake &mistake : calling_mistakes) {
        Calling call;
        mistake.make(call);
        const std::vector<std::uint8_t> x = call.x.snapshot(), y = call.y.snapshot();
        const halyard_status status = halyard_block_forward(nullptr, call.used_block, call.xs, call.used_cache,
                                                            call.layer, call.sequences, call.ys);
        EXPECT_TRUE(refused(status, mistake.status, "halyard_block_forward", mistake.arguments)) << mistake.what;
        EXPECT_TRUE(call.x.snapshot() == x && call.y.snapshot() == y) << mistake.what;
        for (std::int64_t sequence = 0; sequence < 4; sequence++) {
            EXPECT_EQ(call.cache.length(1, sequence), 5) << mistake.what;
        }
    }
    Calling good;
    EXPECT_EQ(
        halyard_block_forward(nullptr, good.used_block, good.xs, good.used_cache, good.layer, good.sequences, good.ys),
        HALYARD_OK)
        << halyard_last_error();
}

TEST(BlockArguments, PositionsEndWhereTheCacheAndTheAnglesDo) {
    BlockForm form = good_form();
    const Block block(form);  // 20 positions
    Tensor x(Dtype::f32, compact_form({21, width})), y(Dtype::f32, compact_form({21, width}));
    fill_rows(x, 1);
    EXPECT_TRUE(refused(halyard_block_forward(nullptr, block.get(), &x.view, nullptr, 0, nullptr, &y.view), invalid,
                        "halyard_block_forward", "max_position_embeddings"));
    EXPECT_STREQ(halyard_last_error(), "halyard_block_forward: x has 21 tokens from position 0 on, but "
                                       "max_position_embeddings of block is 20");
    // The table of one block is not another's that needs a longer one.
    BlockForm longer = form;
    longer.config.max_position_embeddings = 21;
    const Block longer_block(longer);
    EXPECT_EQ(halyard_block_forward(nullptr, longer_block.get(), &x.view, nullptr, 0, nullptr, &y.view), HALYARD_OK)
        << halyard_last_error();
    const BlockCache cache(form, Dtype::f32, 1, 1, 12), long_cache(form, Dtype::f32, 1, 1, 40);
    TokenRows x9(x.view, x.strides(), 0, 9), y9(y.view, y.strides(), 0, 9);
    const auto run = [&](const BlockCache &into) {
        return halyard_block_forward(nullptr, block.get(), &x9.view, into.get(), 0, nullptr, &y9.view);
    };
    EXPECT_EQ(run(cache), HALYARD_OK) << halyard_last_error();
    EXPECT_TRUE(refused(run(cache), invalid, "halyard_block_forward", "cache"));
    EXPECT_STREQ(halyard_last_error(), "halyard_block_forward: x has 9 tokens, but cache has 3 of 12 positions left in "
                                       "layer 0 of sequence 0");
    EXPECT_EQ(cache.length(0, 0), 9);
    EXPECT_EQ(run(long_cache), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(run(long_cache), HALYARD_OK) << halyard_last_error();
    EXPECT_TRUE(refused(run(long_cache), invalid, "halyard_block_forward", "max_position_embeddings"));
    EXPECT_EQ(long_cache.length(0, 0), 18);
}

TEST(BlockArguments, NothingMayLieInTheCache) {
    const BlockForm form = good_form();
    const Block block(form);
    const halyard_kv_cache_options options = {1, 1, kv_heads, head_dim, 16, dlpack_type(Dtype::f32)};
    std::int64_t bytes = 0;
    ASSERT_EQ(halyard_kv_cache_size(&options, &bytes), HALYARD_OK) << halyard_last_error();
    Tensor memory(Dtype::f32, {{bytes / 4 + 64}, {}, Placement::starts_at_guard, 0, 0});
    memory.fill([](std::int64_t, std::int64_t) { return 0.0; });
    halyard_kv_cache *cache = nullptr;
    ASSERT_EQ(halyard_kv_cache_create(&options, memory.at(0, 0), bytes, &cache), HALYARD_OK) << halyard_last_error();
    Tensor x(Dtype::f32, compact_form({2, width})), y(Dtype::f32, compact_form({2, width}));
    fill_rows(x, 1);
    DLTensor inside = y.view;
    inside.data = memory.at(0, 16);
    EXPECT_TRUE(refused(halyard_block_forward(nullptr, block.get(), &x.view, cache, 0, nullptr, &inside), invalid,
                        "halyard_block_forward", "y"));
    EXPECT_TRUE(refused(halyard_block_forward(nullptr, block.get(), &inside, cache, 0, nullptr, &y.view), invalid,
                        "halyard_block_forward", "x"));
    EXPECT_EQ(halyard_kv_cache_length(cache, 0, 0), 0);
    halyard_kv_cache_destroy(cache);
}

}  // namespace
}  // namespace halyard::tests
