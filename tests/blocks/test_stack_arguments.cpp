// Every bad argument of stacks: the call fails with the right kind of status, the message names the function and the
// argument, and nothing is written or appended.
#include "support/kv_cache.h"
#include "support/small_block.h"
#include "support/stack.h"

#include <cmath>
#include <cstring>

namespace halyard::tests {
namespace {

// ---- Making stacks -----------------------------------------------------------------------------------------------

constexpr std::int64_t vocab = 11, layers = 2;

/** What halyard_stack_create gets, to be spoiled. */
struct StackMaking {
    halyard_stack_config &c;
    halyard_stack_weights &w;
    const halyard_block **blocks;
    const halyard_block *narrow_block;
    DLTensor &embed_tokens, &embed_positions, &lm_head;
    DLTensor &norm;
    std::int64_t n_layers = layers;
    const halyard_stack_config *config = &c;
    const halyard_stack_weights *weights = &w;
    bool no_result = false;
};

struct StackMakingMistake {
    const char *what, *arguments;
    halyard_status status;
    void (*make)(StackMaking &);
};

const StackMakingMistake stack_making_mistakes[] = {
    {"null", "config", invalid, [](StackMaking &m) { m.config = nullptr; }},
    {"null", "weights", invalid, [](StackMaking &m) { m.weights = nullptr; }},
    {"null", "stack", invalid, [](StackMaking &m) { m.no_result = true; }},
    {"null", "blocks", invalid, [](StackMaking &m) { m.blocks = nullptr; }},
    {"one null", "blocks", invalid, [](StackMaking &m) { m.blocks[1] = nullptr; }},
    {"one of another width", "blocks", invalid, [](StackMaking &m) { m.blocks[1] = m.narrow_block; }},
    {"0", "n_layers", invalid, [](StackMaking &m) { m.n_layers = 0; }},
    {"negative", "n_layers", invalid, [](StackMaking &m) { m.n_layers = -1; }},
    {"huge", "n_layers", invalid, [](StackMaking &m) { m.n_layers = INT64_MAX; }},
    {"0", "vocab_size", invalid, [](StackMaking &m) { m.c.vocab_size = 0; }},
    {"another", "embed_tokens", invalid, [](StackMaking &m) { m.c.vocab_size = vocab + 1; }},
    {"0", "hidden_size", invalid, [](StackMaking &m) { m.c.hidden_size = 0; }},
    {"another", "embed_tokens", invalid, [](StackMaking &m) { m.c.hidden_size = width + 1; }},
    {"NaN", "embedding_multiplier", invalid, [](StackMaking &m) { m.c.embedding_multiplier = NAN; }},
    {"unknown", "norm", invalid, [](StackMaking &m) { m.c.norm = static_cast<halyard_norm>(3); }},
    {"negative", "rms_norm_eps", invalid, [](StackMaking &m) { m.c.rms_norm_eps = -1; }},
    {"unknown bits", "norm_flags", invalid, [](StackMaking &m) { m.c.norm_flags = 4; }},
    {"of no RMSNorm", "norm_flags", invalid,
     [](StackMaking &m) {
         m.c.norm = HALYARD_NORM_LAYER;
         m.c.norm_flags = HALYARD_RMS_UNIT_OFFSET;
     }},
    {"negative", "final_logit_softcapping", invalid, [](StackMaking &m) { m.c.final_logit_softcapping = -30; }},
    {"infinite", "final_logit_softcapping", invalid, [](StackMaking &m) { m.c.final_logit_softcapping = INFINITY; }},
    {"denormal", "final_logit_softcapping", invalid, [](StackMaking &m) { m.c.final_logit_softcapping = 1e-40f; }},
    {"too large", "final_logit_softcapping", invalid, [](StackMaking &m) { m.c.final_logit_softcapping = 1e31f; }},
    {"null", "embed_tokens", invalid, [](StackMaking &m) { m.w.embed_tokens = nullptr; }},
    {"int32", "embed_tokens", unsupported, [](StackMaking &m) { m.embed_tokens.dtype.code = kDLInt; }},
    {"no matrix", "embed_tokens", invalid, [](StackMaking &m) { m.embed_tokens.ndim = 1; }},
    {"a row less", "embed_tokens", invalid, [](StackMaking &m) { m.embed_tokens.shape[0]--; }},
    {"a feature less", "embed_positions", invalid, [](StackMaking &m) { m.embed_positions.shape[1]--; }},
    {"no rows", "embed_positions", invalid, [](StackMaking &m) { m.embed_positions.shape[0] = 0; }},
    {"no matrix", "embed_positions", invalid, [](StackMaking &m) { m.embed_positions.ndim = 1; }},
    {"a row less", "lm_head", invalid, [](StackMaking &m) { m.lm_head.shape[0]--; }},
    {"a feature less", "lm_head", invalid, [](StackMaking &m) { m.lm_head.shape[1]--; }},
    {"CUDA", "lm_head", unsupported, [](StackMaking &m) { m.lm_head.device.device_type = kDLCUDA; }},
    {"a feature less", "norm", invalid, [](StackMaking &m) { m.norm.shape[0]--; }},
    {"without a norm", "norm", invalid, [](StackMaking &m) { m.c.norm = HALYARD_NORM_NONE; }},
    {"of an RMSNorm", "norm_bias", invalid, [](StackMaking &m) { m.w.norm_bias = &m.norm; }},
    {"unknown", "embed_norm", invalid, [](StackMaking &m) { m.c.embed_norm = static_cast<halyard_norm>(3); }},
    {"without a norm", "embed_norm", invalid, [](StackMaking &m) { m.w.embed_norm = &m.norm; }},
    {"without a norm", "embed_norm_bias", invalid, [](StackMaking &m) { m.w.embed_norm_bias = &m.norm; }},
    {"no matrix", "embed_types", invalid, [](StackMaking &m) { m.w.embed_types = &m.norm; }},
    {"though there is to be none", "lm_head", invalid, [](StackMaking &m) { m.c.no_lm_head = 1; }},
};

TEST(StackArguments, OfMakingAStack) {
    const Block first(good_form()), second(good_form());
    BlockForm narrow = good_form();
    narrow.config.hidden_size = 16;
    narrow.config.head_dim = head_dim;
    const Block narrow_block(narrow);
    for (const StackMakingMistake &mistake : stack_making_mistakes) {
        Tensor tokens(Dtype::f32, compact_form({vocab, width})), positions(Dtype::f32, compact_form({9, width})),
            head(Dtype::f32, compact_form({vocab, width})), norm(Dtype::f32, compact_form({width}));
        halyard_stack_config config{};
        config.vocab_size = vocab;
        config.hidden_size = width;
        config.norm = HALYARD_NORM_RMS;
        halyard_stack_weights weights{};
        weights.embed_tokens = &tokens.view;
        weights.embed_positions = &positions.view;
        weights.lm_head = &head.view;
        weights.norm = &norm.view;
        const halyard_block *blocks[] = {first.get(), second.get()};
        StackMaking making = {config,      weights,        blocks,    narrow_block.get(),
                              tokens.view, positions.view, head.view, norm.view};
        mistake.make(making);
        auto *const untouched = reinterpret_cast<halyard_stack *>(&making);
        halyard_stack *stack = untouched;
        const halyard_status status = halyard_stack_create(nullptr, making.config, making.weights, making.blocks,
                                                           making.n_layers, making.no_result ? nullptr : &stack);
        EXPECT_TRUE(refused(status, mistake.status, "halyard_stack_create", mistake.arguments)) << mistake.what;
        EXPECT_EQ(stack, untouched) << mistake.what;
    }
    halyard_stack_config config;
    EXPECT_TRUE(refused(halyard_stack_get_config(nullptr, &config), invalid, "halyard_stack_get_config", "stack"));
}

TEST(StackArguments, AnAbsentNormOfTheEmbeddingIsNotTheLastOne) {
    const Block block(good_form());
    Tensor tokens(Dtype::f32, compact_form({vocab, width})), norm(Dtype::f32, compact_form({width}));
    halyard_stack_config config{};
    config.vocab_size = vocab;
    config.hidden_size = width;
    config.norm = HALYARD_NORM_LAYER;
    halyard_stack_weights weights{};
    weights.embed_tokens = &tokens.view;
    weights.embed_norm = &norm.view;
    const halyard_block *blocks[] = {block.get()};
    halyard_stack *stack = nullptr;
    EXPECT_EQ(halyard_stack_create(nullptr, &config, &weights, blocks, 1, &stack), invalid);
    EXPECT_STREQ(halyard_last_error(),
                 "halyard_stack_create: embed_norm is given, but embed_norm of config is HALYARD_NORM_NONE");
}

// ---- Calling stacks ----------------------------------------------------------------------------------------------

StackForm good_stack() {
    StackForm form;
    form.block = good_form();
    form.vocab = vocab;
    form.positions = 18;
    return form;
}

/** A call with a cache of 2 layers, 4 sequences and 16 positions, of which 5 are filled. */
struct StackCalling {
    StackCalling() : stack(good_stack()), cache(good_form(), Dtype::f32, layers, 4, 16) {
        const IdTensor before(
            {some_ids(5, vocab, 1), some_ids(5, vocab, 2), some_ids(5, vocab, 3), some_ids(5, vocab, 4)}, true, true);
        Tensor after(Dtype::f32, compact_form({4, vocab}));
        EXPECT_EQ(halyard_stack_forward(nullptr, stack.get(), &before.view, cache.get(), nullptr, nullptr, &after.view),
                  HALYARD_OK)
            << halyard_last_error();
    }

    const Stack stack;
    const BlockCache cache;
    IdTensor id_tensor{{some_ids(3, vocab, 5), some_ids(3, vocab, 6)}, true, true};
    Tensor logits{Dtype::f32, compact_form({2, vocab})};
    const halyard_stack *used_stack = stack.get();
    halyard_kv_cache *used_cache = cache.get();
    std::int64_t sequences[2] = {3, 1};
    DLTensor *ids = &id_tensor.view, *result = &logits.view;
    halyard_stack_options options{};
    std::int64_t shape[4] = {}, strides[4] = {};
    std::unique_ptr<Stack> other_stack;
    std::unique_ptr<BlockCache> other_cache;
    std::unique_ptr<IdTensor> types;

    std::int64_t &id(int i) { return static_cast<std::int64_t *>(ids->data)[i]; }
    void use_stack(const StackForm &form) {
        other_stack = std::make_unique<Stack>(form);
        used_stack = other_stack->get();
    }
    /** A stack with rows for so many kinds of tokens, and the kinds of the second sequence. */
    void use_types(const Ids &second, std::int64_t rows) {
        StackForm form = good_stack();
        form.types = rows;
        use_stack(form);
        types = std::make_unique<IdTensor>(std::vector<Ids>{{0, 0, 0}, second}, true, true);
        options.token_types = &types->view;
    }
    void use_cache(const halyard_kv_cache_options &other) {
        other_cache = std::make_unique<BlockCache>(other);
        used_cache = other_cache->get();
    }
    void reshape(DLTensor &tensor, std::initializer_list<std::int64_t> extents) {
        std::copy(extents.begin(), extents.end(), shape);
        tensor.ndim = static_cast<int>(extents.size());
        tensor.shape = shape;
    }
};

struct StackCallingMistake {
    const char *what, *arguments;
    halyard_status status;
    void (*make)(StackCalling &);
};

const StackCallingMistake stack_calling_mistakes[] = {
    {"null", "stack", invalid, [](StackCalling &c) { c.used_stack = nullptr; }},
    {"null", "input_ids", invalid, [](StackCalling &c) { c.ids = nullptr; }},
    {"null", "logits", invalid, [](StackCalling &c) { c.result = nullptr; }},
    {"null data", "input_ids", invalid, [](StackCalling &c) { c.ids->data = nullptr; }},
    {"null shape", "input_ids", invalid, [](StackCalling &c) { c.ids->shape = nullptr; }},
    {"off by a byte", "input_ids", invalid, [](StackCalling &c) { c.ids->byte_offset = 1; }},
    {"CUDA", "input_ids", unsupported, [](StackCalling &c) { c.ids->device.device_type = kDLCUDA; }},
    {"f32", "input_ids", unsupported, [](StackCalling &c) { c.ids->dtype = dlpack_type(Dtype::f32); }},
    {"int16", "input_ids", unsupported, [](StackCalling &c) { c.ids->dtype.bits = 16; }},
    {"unsigned", "input_ids", unsupported, [](StackCalling &c) { c.ids->dtype.code = kDLUInt; }},
    {"two lanes", "input_ids", unsupported, [](StackCalling &c) { c.ids->dtype.lanes = 2; }},
    {"rank 0", "input_ids", invalid, [](StackCalling &c) { c.ids->ndim = 0; }},
    {"rank 3", "input_ids", invalid,
     [](StackCalling &c) {
         c.reshape(*c.ids, {1, 2, 3});
     }},
    {"negative extent", "input_ids", invalid, [](StackCalling &c) { c.ids->shape[1] = -3; }},
    {"negative stride", "input_ids", invalid,
     [](StackCalling &c) {
         c.strides[0] = -3;
         c.strides[1] = 1;
         c.ids->strides = c.strides;
     }},
    {"huge strides", "input_ids", invalid,
     [](StackCalling &c) {
         c.strides[0] = INT64_MAX / 2;
         c.strides[1] = INT64_MAX / 2;
         c.ids->strides = c.strides;
     }},
    {"bytes beyond 64 bits", "input_ids", invalid,
     [](StackCalling &c) {
         c.strides[0] = 3;
         c.strides[1] = std::int64_t{1} << 60;
         c.ids->strides = c.strides;
     }},
    {"a sum of strides beyond 64 bits", "input_ids", invalid,
     [](StackCalling &c) {
         c.strides[0] = c.strides[1] = INT64_MAX / 8;
         c.ids->strides = c.strides;
     }},
    {"byte_offset beyond all addresses", "input_ids", invalid,
     [](StackCalling &c) { c.ids->byte_offset = -UINT64_C(8); }},
    {"no tokens", "input_ids", invalid,
     [](StackCalling &c) {
         c.reshape(*c.ids, {2, 0});
     }},
    {"id below 0", "input_ids[0, 1]", invalid, [](StackCalling &c) { c.id(1) = -1; }},
    {"id of nothing", "input_ids[1, 2]", invalid, [](StackCalling &c) { c.id(5) = vocab; }},
    {"huge id", "input_ids[1, 0]", invalid, [](StackCalling &c) { c.id(3) = INT64_MAX; }},
    {"rank 1", "logits", invalid, [](StackCalling &c) { c.reshape(*c.result, {vocab}); }},
    {"rank 3", "logits", invalid,
     [](StackCalling &c) {
         c.reshape(*c.result, {2, 1, vocab});
     }},
    {"of the last only", "logits", invalid, [](StackCalling &c) { c.options.all_logits = 1; }},
    {"a sequence less", "logits", invalid, [](StackCalling &c) { c.result->shape[0]--; }},
    {"a word less", "logits", invalid, [](StackCalling &c) { c.result->shape[1]--; }},
    {"int32", "logits", unsupported, [](StackCalling &c) { c.result->dtype.code = kDLInt; }},
    {"in one place", "logits", invalid,
     [](StackCalling &c) {
         c.strides[1] = 1;
         c.result->strides = c.strides;
     }},
    {"at the ids", "logits", invalid, [](StackCalling &c) { c.result->data = c.ids->data; }},
    {"at the embedding", "logits", invalid, [](StackCalling &c) { c.result->data = c.stack.embed_tokens->at(1, 0); }},
    {"at the positions", "logits", invalid,
     [](StackCalling &c) { c.result->data = c.stack.embed_positions->at(1, 0); }},
    {"below 0", "sequences", invalid, [](StackCalling &c) { c.sequences[1] = -1; }},
    {"beyond the last", "sequences", invalid, [](StackCalling &c) { c.sequences[0] = 4; }},
    {"twice the same", "sequences", invalid, [](StackCalling &c) { c.sequences[0] = 1; }},
    {"too few layers", "cache", invalid,
     [](StackCalling &c) {
         c.use_cache({1, 4, kv_heads, head_dim, 16, dlpack_type(Dtype::f32)});
     }},
    {"too few sequences", "cache", invalid,
     [](StackCalling &c) {
         c.use_cache({2, 1, kv_heads, head_dim, 16, dlpack_type(Dtype::f32)});
     }},
    {"other heads", "cache", invalid,
     [](StackCalling &c) {
         c.use_cache({2, 4, heads, head_dim, 16, dlpack_type(Dtype::f32)});
     }},
    {"no room", "cache", invalid,
     [](StackCalling &c) {
         c.use_cache({2, 4, kv_heads, head_dim, 2, dlpack_type(Dtype::f32)});
     }},
    {"layers of different lengths", "cache", invalid,
     [](StackCalling &c) {
         c.use_cache({2, 4, kv_heads, head_dim, 16, dlpack_type(Dtype::f32)});
         Tensor k(Dtype::f32, compact_form({1, kv_heads, head_dim}));
         k.fill([](std::int64_t, std::int64_t) { return 0.0; });
         const std::int64_t sequence = 1;
         EXPECT_EQ(halyard_kv_cache_append(nullptr, c.used_cache, 1, &sequence, &k.view, &k.view), HALYARD_OK)
             << halyard_last_error();
     }},
    {"too few", "embed_positions", invalid,
     [](StackCalling &c) {
         StackForm form = good_stack();
         form.positions = 7;
         c.use_stack(form);
     }},
    {"too few", "max_position_embeddings", invalid,
     [](StackCalling &c) {
         StackForm form = good_stack();
         form.block.config.max_position_embeddings = 7;
         c.use_stack(form);
     }},
    {"of a stack without", "token_types", invalid,
     [](StackCalling &c) {
         c.use_types({0, 0, 0}, 0);
     }},
    {"of one sequence", "token_types", invalid,
     [](StackCalling &c) {
         c.use_types({0, 0, 0}, 2);
         c.reshape(c.types->view, {3});
     }},
    {"CUDA", "token_types", unsupported,
     [](StackCalling &c) {
         c.use_types({0, 0, 0}, 2);
         c.types->view.device.device_type = kDLCUDA;
     }},
    {"below 0", "token_types[1, 1]", invalid,
     [](StackCalling &c) {
         c.use_types({0, -1, 0}, 2);
     }},
    {"of no row", "token_types[1, 2]", invalid,
     [](StackCalling &c) {
         c.use_types({0, 1, 2}, 2);
     }},
    {"at the kinds", "logits", invalid,
     [](StackCalling &c) {
         c.use_types({0, 1, 1}, 2);
         c.result->data = c.types->view.data;
     }},
    {"at their rows", "logits", invalid,
     [](StackCalling &c) {
         c.use_types({0, 1, 1}, 2);
         c.result->data = c.other_stack->embed_types->at(0, 0);
     }},
    {"none", "lm_head", invalid,
     [](StackCalling &c) {
         StackForm form = good_stack();
         form.headless = true;
         c.use_stack(form);
     }},
    {"not causal", "blocks[0]", invalid,
     [](StackCalling &c) {
         StackForm form = good_stack();
         form.block.config.causal = 0;
         c.use_stack(form);
     }},
};

TEST(StackArguments, OfCallingAStack) {
    for (const StackCallingMistake &mistake : stack_calling_mistakes) {
        StackCalling call;
        mistake.make(call);
        int seen = 0;
        call.options.observer = [](void *user, std::int64_t, std::int64_t, const DLTensor *) {
            ++*static_cast<int *>(user);
        };
        call.options.user = &seen;
        const std::vector<std::uint8_t> before = call.logits.snapshot();
        const halyard_status status = halyard_stack_forward(nullptr, call.used_stack, call.ids, call.used_cache,
                                                            call.sequences, &call.options, call.result);
        const std::string message = halyard_last_error();
        // An index is part of the word.
        EXPECT_EQ(status, mistake.status) << mistake.what << " " << mistake.arguments << ": " << message;
        EXPECT_EQ(message.find("halyard_stack_forward: "), 0U) << message;
        EXPECT_NE(message.find(mistake.arguments), std::string::npos) << mistake.what << ": " << message;
        EXPECT_EQ(seen, 0) << mistake.what;
        EXPECT_TRUE(call.logits.snapshot() == before) << mistake.what;
        for (std::int64_t layer = 0; layer < layers; layer++) {
            for (std::int64_t sequence = 0; sequence < 4; sequence++) {
                EXPECT_EQ(call.cache.length(layer, sequence), 5) << mistake.what;
            }
        }
    }
    StackCalling good;
    EXPECT_EQ(halyard_stack_forward(nullptr, good.used_stack, good.ids, good.used_cache, good.sequences, nullptr,
                                    good.result),
              HALYARD_OK)
        << halyard_last_error();
}

TEST(StackArguments, OfAskingForHiddenStates) {
    const StackCalling call;
    Tensor hidden(Dtype::f32, compact_form({2, 3, width}));
    const std::vector<std::uint8_t> before = hidden.snapshot();
    const auto is_refused = [&](const halyard_stack *stack, const DLTensor *ids, DLTensor *result, const char *word) {
        const halyard_status status =
            halyard_stack_hidden_states(nullptr, stack, ids, nullptr, nullptr, nullptr, result);
        return refused(status, invalid, "halyard_stack_hidden_states", word) && hidden.snapshot() == before;
    };
    DLTensor narrow = hidden.view, flat = hidden.view;
    const std::int64_t narrow_shape[] = {2, 3, width - 1};
    narrow.shape = const_cast<std::int64_t *>(narrow_shape);
    flat.ndim = 2;
    EXPECT_TRUE(is_refused(nullptr, call.ids, &hidden.view, "stack"));
    EXPECT_TRUE(is_refused(call.stack.get(), nullptr, &hidden.view, "input_ids"));
    EXPECT_TRUE(is_refused(call.stack.get(), call.ids, nullptr, "hidden"));
    EXPECT_TRUE(is_refused(call.stack.get(), call.ids, &narrow, "hidden"));
    EXPECT_TRUE(is_refused(call.stack.get(), call.ids, &flat, "hidden"));
    EXPECT_EQ(halyard_stack_hidden_states(nullptr, call.stack.get(), call.ids, nullptr, nullptr, nullptr, &hidden.view),
              HALYARD_OK)
        << halyard_last_error();
}

TEST(StackArguments, MessagesSayWhichIdAndWhichPositions) {
    const Stack stack(good_stack());  // 18 learned positions
    Tensor logits(Dtype::f32, compact_form({vocab}));
    Ids ids = some_ids(19, vocab, 1);
    const auto run = [&](const Ids &some) {
        const IdTensor tensor(some);
        return halyard_stack_forward(nullptr, stack.get(), &tensor.view, nullptr, nullptr, nullptr, &logits.view);
    };
    EXPECT_EQ(run(ids), invalid);
    EXPECT_STREQ(halyard_last_error(),
                 "halyard_stack_forward: input_ids has 19 tokens from position 0 on, but embed_positions has 18");
    ids.pop_back();
    EXPECT_EQ(run(ids), HALYARD_OK) << halyard_last_error();
    ids[4] = 70000;
    EXPECT_EQ(run(ids), invalid);
    EXPECT_STREQ(halyard_last_error(), "halyard_stack_forward: input_ids[4] is 70000, but vocab_size is 11");
}

TEST(StackArguments, IdsMayNotLieInTheCache) {
    StackCalling call;
    const Cache cache(options_of(layers, 4, kv_heads, head_dim, 16, Dtype::f32));
    call.ids->data = std::memset(cache.memory.view.data, 0, static_cast<std::size_t>(cache.bytes));
    EXPECT_EQ(halyard_stack_forward(nullptr, call.used_stack, call.ids, cache.get(), nullptr, nullptr, call.result),
              HALYARD_INVALID_ARGUMENT);
    EXPECT_NE(std::strstr(halyard_last_error(), "input_ids overlaps the memory of the cache"), nullptr)
        << halyard_last_error();
    EXPECT_EQ(cache.lengths(), std::vector<std::int64_t>(layers * 4, 0));
}

}  // namespace
}  // namespace halyard::tests
