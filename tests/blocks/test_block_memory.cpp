// The memory of blocks and stacks: nothing is allocated in steady state, blocks with equal rotary embeddings share a
// table of angles, and a call that finds no memory leaves everything as it was.
#include "support/allocations.h"
#include "support/coded_block.h"
#include "support/stack.h"
#include "support/test_scale.h"

namespace halyard::tests {
namespace {

constexpr std::int64_t width = 66, long_prompt = 530;

StackForm stack_form(const std::string &preset) {
    StackForm form;
    form.layers = emulated ? 2 : 3;  // which the number of failing calls and the time of each grow with
    form.block.config = small_preset(preset, 20);
    form.block.config.causal = 1;
    form.block.config.hidden_size = width;
    form.block.config.intermediate_size = emulated ? 70 : 150;
    form.block.config.max_position_embeddings = 1200;
    form.block.matrices = Dtype::bf16;
    form.block.head_norms = preset == "qwen";
    form.positions = 1200;
    form.multiplier = 2;
    form.softcap = 5;
    form.norm = form.block.config.norm;
    return form;
}

/** In the emulator every fourth allocation fails in turn. */
constexpr int failure_step = emulated ? 4 : 1;

const std::vector<std::string> some_presets =
    emulated ? std::vector<std::string>{"qwen"} : std::vector<std::string>{"original_2017", "qwen", "gemma"};

/** Both, or one of them in an emulator. */
std::vector<Dtype> types(Dtype first, Dtype second) {
    return emulated ? std::vector<Dtype>{second} : std::vector<Dtype>{first, second};
}

TEST(BlockMemory, SteadyStateAllocatesNothing) {
    constexpr int rounds = emulated ? 1 : 3;
    for (const std::string &preset : some_presets) {
        const StackForm form = stack_form(preset);
        const Stack stack(form);
        for (const Dtype type : types(Dtype::f32, Dtype::bf16)) {
            for (const int threads : {1, 2}) {
                const Context context(supported_isas().back(), threads);
                const BlockCache cache(form.block, type, form.layers, 2, 900);
                Tensor x(type, compact_form({2, 70, width})), y(type, compact_form({2, 70, width}));
                fill_rows(x, 1);
                const std::vector<Ids> prompts = {some_ids(long_prompt, form.vocab, 1),
                                                  some_ids(long_prompt, form.vocab, 2)};
                const IdTensor prompt(prompts, true, true), next({{1}, {2}}, true, false);
                const IdTensor short_prompt({some_ids(40, form.vocab, 3), some_ids(40, form.vocab, 4)}, true, true);
                Tensor logits(type, compact_form({2, form.vocab}));
                Tensor all(type, compact_form({2, 40, form.vocab}));
                halyard_stack_options every_token{};
                every_token.all_logits = 1;
                const auto call_all = [&] {
                    const halyard_block *const block = stack.blocks[0]->get();
                    ASSERT_EQ(halyard_block_forward(context.get(), block, &x.view, nullptr, 0, nullptr, &y.view),
                              HALYARD_OK)
                        << halyard_last_error();
                    ASSERT_EQ(halyard_kv_cache_truncate(cache.get(), 0, 0), HALYARD_OK);
                    ASSERT_EQ(halyard_kv_cache_truncate(cache.get(), 1, 0), HALYARD_OK);
                    ASSERT_EQ(halyard_stack_forward(context.get(), stack.get(), &prompt.view, cache.get(), nullptr,
                                                    nullptr, &logits.view),
                              HALYARD_OK)
                        << halyard_last_error();
                    for (int i = 0; i < 3; i++) {
                        ASSERT_EQ(halyard_stack_forward(context.get(), stack.get(), &next.view, cache.get(), nullptr,
                                                        nullptr, &logits.view),
                                  HALYARD_OK)
                            << halyard_last_error();
                    }
                    ASSERT_EQ(halyard_block_forward(context.get(), block, &x.view, cache.get(), 1, nullptr, &x.view),
                              HALYARD_OK)
                        << halyard_last_error();
                    ASSERT_EQ(halyard_stack_forward(context.get(), stack.get(), &short_prompt.view, nullptr, nullptr,
                                                    &every_token, &all.view),
                              HALYARD_OK)
                        << halyard_last_error();
                };
                for (int i = 0; i < rounds; i++) {
                    ASSERT_NO_FATAL_FAILURE(call_all());
                }
                count_allocations();
                for (int i = 0; i < rounds; i++) {
                    ASSERT_NO_FATAL_FAILURE(call_all());
                }
                EXPECT_EQ(allocations().calls, 0) << preset << ", " << name_of(type) << " on " << threads << " threads";
            }
        }
    }
}

TEST(BlockMemory, BlocksShareTheirTableOfAngles) {
    constexpr std::int64_t positions = emulated ? 20000 : 100000, pairs = 10;
    constexpr long table = 2 * 4 * positions * pairs;
    BlockForm form = stack_form("qwen").block;
    form.config.max_position_embeddings = positions;
    const BlockTensors tensors(form);
    const auto create = [&](const halyard_block_config &config) {
        halyard_block *block = nullptr;
        count_allocations();
        EXPECT_EQ(halyard_block_create(nullptr, &config, &tensors.weights, &block), HALYARD_OK) << halyard_last_error();
        return block;
    };
    halyard_block_config other = form.config;
    other.rope.rope_theta *= 2;
    halyard_block *const first = create(form.config);
    EXPECT_GE(allocations().bytes, table);
    halyard_block *const second = create(form.config);
    EXPECT_LT(allocations().bytes, table);
    halyard_block *const third = create(other);
    EXPECT_GE(allocations().bytes, table);
    // It lives as long as one of them.
    halyard_block_destroy(first);
    halyard_block *const fourth = create(form.config);
    EXPECT_LT(allocations().bytes, table);
    halyard_block_destroy(second);
    halyard_block_destroy(fourth);
    halyard_block_destroy(third);
    halyard_block_destroy(create(form.config));
    EXPECT_GE(allocations().bytes, table);
}

TEST(BlockMemory, CreationFailsCleanly) {
    StackForm form = stack_form("qwen");
    const BlockTensors tensors(form.block);
    int failures = 0;
    for (bool failed = true; failed; failures += failed ? failure_step : 0) {
        halyard_block *block = nullptr;
        halyard_status status = HALYARD_OK;
        failed = with_failure_after(
            failures, [&] { status = halyard_block_create(nullptr, &form.block.config, &tensors.weights, &block); });
        if (failed) {
            EXPECT_TRUE(refused(status, HALYARD_OUT_OF_MEMORY, "halyard_block_create", "no memory"));
            EXPECT_EQ(block, nullptr);
        } else {
            EXPECT_EQ(status, HALYARD_OK);
            halyard_block_destroy(block);
        }
    }
    EXPECT_GE(failures, 8);

    const Stack stack(form);
    const halyard_block *const layers[] = {stack.blocks[0]->get()};
    halyard_stack_weights weights{};
    weights.embed_tokens = &stack.embed_tokens->view;
    failures = 0;
    for (bool failed = true; failed; failures += failed ? failure_step : 0) {
        halyard_stack *made = nullptr;
        halyard_status status = HALYARD_OK;
        failed = with_failure_after(failures, [&] {
            status = halyard_stack_create(nullptr, &stack.values.config, &weights, layers, 1, &made);
        });
        if (failed) {
            EXPECT_TRUE(refused(status, HALYARD_OUT_OF_MEMORY, "halyard_stack_create", "no memory"));
            EXPECT_EQ(made, nullptr);
        } else {
            EXPECT_EQ(status, HALYARD_OK);
            halyard_stack_destroy(made);
        }
    }
    EXPECT_GE(failures, 5);
}

TEST(BlockMemory, CreationFromCodesFailsCleanly) {
    const CodedBlock joined(of_one_format("Q8_0", HALYARD_CODES_Q8_0)), apart(q4_k_m);
    const CodedTensor table(HALYARD_CODES_Q8_0, 40, CodedBlock::hidden, 1);
    for (const CodedBlock *const coded : {&joined, &apart}) {
        halyard_block *block = nullptr;
        const long in_use = allocations().bytes_in_use;
        int failures = 0;
        for (bool failed = true; failed; failures += failed ? failure_step : 0) {
            halyard_status status = HALYARD_OK;
            failed = with_failure_after(failures, [&] {
                status = halyard_block_create(nullptr, &coded->tensors.form.config, &coded->weights, &block);
            });
            if (failed) {
                EXPECT_TRUE(refused(status, HALYARD_OUT_OF_MEMORY, "halyard_block_create", "no memory"));
                EXPECT_EQ(block, nullptr);
                EXPECT_EQ(allocations().bytes_in_use, in_use) << failures;
            }
        }
        EXPECT_GE(failures, 8);

        halyard_stack_config config{};
        config.vocab_size = 40;
        config.hidden_size = CodedBlock::hidden;
        halyard_stack_weights weights{};
        weights.embed_tokens_codes = &table.codes;
        const halyard_block *const blocks[] = {block};
        halyard_stack *stack = nullptr;
        failures = 0;
        for (bool failed = true; failed; failures += failed ? failure_step : 0) {
            halyard_status status = HALYARD_OK;
            failed = with_failure_after(
                failures, [&] { status = halyard_stack_create(nullptr, &config, &weights, blocks, 1, &stack); });
            EXPECT_EQ(status, failed ? HALYARD_OUT_OF_MEMORY : HALYARD_OK);
        }
        EXPECT_GE(failures, 5);
        halyard_stack_destroy(stack);
        halyard_block_destroy(block);
        EXPECT_EQ(allocations().bytes_in_use, in_use);
    }
}

TEST(BlockMemory, FailedCallsWriteAndAppendNothing) {
    for (const std::string &preset : some_presets) {
        const StackForm form = stack_form(preset);
        const Stack stack(form);
        const BlockCache cache(form.block, Dtype::f32, form.layers, 2, 900);
        const std::int64_t sequences[] = {1, 0};
        for (const Dtype type : types(Dtype::f32, Dtype::f16)) {
            Tensor x(type, compact_form({2, 9, width})), y(type, compact_form({2, 9, width}));
            fill_rows(x, 1);
            const auto lengths_are = [&](std::int64_t layer, std::int64_t length) {
                return cache.length(layer, 0) == length && cache.length(layer, 1) == length;
            };
            // A block after another in the same layer, so that there is something before.
            ASSERT_EQ(halyard_block_forward(nullptr, stack.blocks[0]->get(), &x.view, cache.get(), 1, nullptr, &y.view),
                      HALYARD_OK)
                << halyard_last_error();
            int failures = 0;
            for (bool failed = true; failed; failures += failed ? failure_step : 0) {
                const Context context(supported_isas().back());  // without scratch so far
                y.clear();
                const std::vector<std::uint8_t> before = y.snapshot();
                halyard_status status = HALYARD_OK;
                failed = with_failure_after(failures, [&] {
                    status = halyard_block_forward(context.get(), stack.blocks[0]->get(), &x.view, cache.get(), 1,
                                                   sequences, &y.view);
                });
                if (failed) {
                    EXPECT_TRUE(refused(status, HALYARD_OUT_OF_MEMORY, "halyard_block_forward", "no memory"));
                    EXPECT_EQ(y.snapshot(), before);
                    EXPECT_TRUE(lengths_are(1, 9)) << failures;
                } else {
                    EXPECT_EQ(status, HALYARD_OK);
                    EXPECT_TRUE(lengths_are(1, 18));
                }
                for (std::int64_t layer = 0; layer < form.layers; layer++) {
                    EXPECT_TRUE(layer == 1 || lengths_are(layer, 0)) << layer;
                }
            }
            EXPECT_GE(failures, 2);
            for (const std::int64_t sequence : {0, 1}) {
                ASSERT_EQ(halyard_kv_cache_truncate(cache.get(), sequence, 0), HALYARD_OK);
            }

            // A stack, in parts: the second finds the scratch of the first, unless that is taken from it.
            const std::vector<Ids> prompts = {some_ids(long_prompt, form.vocab, 1),
                                              some_ids(long_prompt, form.vocab, 2)};
            const IdTensor start({{1, 2}, {3, 4}}, true, true), prompt(prompts, true, true);
            Tensor logits(type, compact_form({2, long_prompt, form.vocab})), first(type, compact_form({2, form.vocab}));
            ASSERT_EQ(
                halyard_stack_forward(nullptr, stack.get(), &start.view, cache.get(), nullptr, nullptr, &first.view),
                HALYARD_OK)
                << halyard_last_error();
            struct Releases {
                const halyard_context *context;
                static void see(void *user, std::int64_t, std::int64_t, const DLTensor *) {
                    halyard_context_release_scratch(static_cast<Releases *>(user)->context);
                }
            };
            failures = 0;
            for (bool failed = true; failed; failures += failed ? failure_step : 0) {
                const Context context(supported_isas().back());
                Releases releases = {context.get()};
                halyard_stack_options options{};
                options.all_logits = 1;
                options.observer = Releases::see;
                options.user = &releases;
                logits.clear();
                const std::vector<std::uint8_t> before = logits.snapshot();
                halyard_status status = HALYARD_OK;
                failed = with_failure_after(failures, [&] {
                    status = halyard_stack_forward(context.get(), stack.get(), &prompt.view, cache.get(), sequences,
                                                   &options, &logits.view);
                });
                if (failed) {
                    EXPECT_TRUE(refused(status, HALYARD_OUT_OF_MEMORY, "halyard_stack_forward", "no memory"));
                    EXPECT_EQ(logits.snapshot(), before);
                } else {
                    EXPECT_EQ(status, HALYARD_OK);
                }
                for (std::int64_t layer = 0; layer < form.layers; layer++) {
                    EXPECT_TRUE(lengths_are(layer, failed ? 2 : long_prompt + 2)) << layer << " after " << failures;
                }
            }
            EXPECT_GE(failures, 2 * form.layers * 2);
            for (const std::int64_t sequence : {0, 1}) {
                ASSERT_EQ(halyard_kv_cache_truncate(cache.get(), sequence, 0), HALYARD_OK);
            }
        }
    }
}

}  // namespace
}  // namespace halyard::tests
