// Stacks: embedding, blocks, last norm and logits against float64; the cache, parts of long prompts, sequences of
// different lengths and threads, bit for bit.
//
// The bounds are those of reference_block.cpp, carried through all layers.
#include "support/reference_hashes.h"
#include "support/stack.h"
#include "support/test_scale.h"
#include "support/threads.h"

#include <algorithm>
#include <atomic>
#include <cmath>

namespace halyard::tests {
namespace {

#ifdef HALYARD_TESTS_REDUCED
constexpr int every = 5;  // one in so many of the combinations
#else
constexpr int every = 1;
#endif

/** Logits of every token of one sequence, f32, at once or in parts through a cache. */
std::unique_ptr<Tensor> logits_of(const Stack &stack, const Ids &ids, const halyard_context *context) {
    auto logits = logits_tensor(stack, Dtype::f32, {static_cast<std::int64_t>(ids.size())});
    const IdTensor tensor(ids);
    const halyard_stack_options options = all_logits();
    EXPECT_EQ(halyard_stack_forward(context, stack.get(), &tensor.view, nullptr, nullptr, &options, &logits->view),
              HALYARD_OK)
        << halyard_last_error();
    return logits;
}

/** The logits of the last of `ids`, which continue a sequence of the cache. */
Row next_logits(const Stack &stack, const Ids &ids, const BlockCache &cache, std::int64_t sequence,
                const halyard_context *context) {
    const auto logits = logits_tensor(stack, Dtype::f32, {});
    const IdTensor tensor(ids);
    EXPECT_EQ(halyard_stack_forward(context, stack.get(), &tensor.view, cache.get(), &sequence, nullptr, &logits->view),
              HALYARD_OK)
        << halyard_last_error();
    return logits->row_values(0);
}

// ---- Results -----------------------------------------------------------------------------------------------------

/** What a stack on a processor rounds on the way. */
Rounding rounding_of(const Stack &stack, Dtype stored = Dtype::f32) {
    return {stored, Dtype::f32, stack.form.block.matrices == Dtype::bf16 ? Dtype::bf16 : Dtype::f32};
}

// An encoder's hidden states, with kinds of tokens, and a decoder's: those that an observer sees, in any dtype.
TEST(Stack, GivesHiddenStates) {
    int number = 0;
    for (const std::string &preset : block_presets()) {
        for (const Dtype type : all_dtypes) {
            StackForm form = preset_stack(preset);
            number++;
            form.tables = form.block.matrices = all_dtypes[number % 3];
            form.headless = number % 2 == 0;
            form.block.config.causal = form.block.config.causal != 0 && preset != "bert" && preset != "original_2017";
            form.block.seed = static_cast<std::uint64_t>(number);
            const Stack stack(form);
            const bool batched = number % 3 != 0;
            const std::int64_t tokens = 1 + number % 6, batch = batched ? 1 + number % 3 : 1;
            std::vector<Ids> sequences, types;
            Matrix expected;
            for (std::int64_t i = 0; i < batch; i++) {
                const auto seed = static_cast<std::uint64_t>(number + i);
                sequences.push_back(some_ids(tokens, form.vocab, seed));
                types.push_back(some_ids(tokens, std::max<std::int64_t>(form.types, 1), seed + 7));
                const Matrix one =
                    halyard::tests::stack(stack.values, sequences.back(), rounding_of(stack), types.back())
                        .hidden.back();
                expected.insert(expected.end(), one.begin(), one.end());
            }
            const IdTensor ids(sequences, batched, number % 2 == 0, number % 4 == 3 ? 5 : 0);
            const IdTensor kinds(types, batched, number % 2 != 0, number % 4 == 2 ? 3 : 0);
            const Shape leading = batched ? Shape{batch, tokens} : Shape{tokens};
            Tensor hidden(type,
                          call_form(type, type, leading).form_of(stack.form.block.config.hidden_size, number % 3));
            for (const halyard_isa isa : supported_isas()) {
                const Context context(isa);
                halyard_stack_options options{};
                options.token_types = form.types != 0 ? &kinds.view : nullptr;
                hidden.clear();
                ASSERT_EQ(halyard_stack_hidden_states(context.get(), stack.get(), &ids.view, nullptr, nullptr, &options,
                                                      &hidden.view),
                          HALYARD_OK)
                    << halyard_last_error() << "; " << form.describe();
                ASSERT_TRUE(as_expected(hidden, expected)) << halyard_isa_name(isa) << "; " << form.describe();
                ASSERT_TRUE(hidden.surroundings_intact());
            }
        }
    }
}

TEST(Stack, GivesTheHiddenStatesOfAPromptThatGoesInParts) {
    StackForm form = preset_stack("bert");
    form.positions = 700;
    const Stack stack(form);
    constexpr std::int64_t tokens = 600;
    const IdTensor ids(some_ids(tokens, form.vocab, 1)), types(some_ids(tokens, form.types, 2));
    const std::int64_t width = form.block.config.hidden_size;
    Tensor whole(Dtype::f32, compact_form({tokens, width})), parts(Dtype::f32, compact_form({tokens, width}));
    const BlockCache cache(form.block, Dtype::f32, form.layers, 1, tokens);
    halyard_stack_options options{};
    options.token_types = &types.view;
    ASSERT_EQ(halyard_stack_hidden_states(nullptr, stack.get(), &ids.view, nullptr, nullptr, &options, &whole.view),
              HALYARD_OK)
        << halyard_last_error();
    ASSERT_EQ(halyard_stack_hidden_states(nullptr, stack.get(), &ids.view, cache.get(), nullptr, &options, &parts.view),
              HALYARD_OK)
        << halyard_last_error();
    EXPECT_TRUE(same_rows(whole, parts));
    EXPECT_EQ(cache.length(0, 0), tokens);
    // Without kinds all tokens are of the first.
    const IdTensor zeros(Ids(tokens, 0));
    options.token_types = &zeros.view;
    ASSERT_EQ(halyard_stack_hidden_states(nullptr, stack.get(), &ids.view, nullptr, nullptr, &options, &whole.view),
              HALYARD_OK);
    ASSERT_EQ(halyard_stack_hidden_states(nullptr, stack.get(), &ids.view, nullptr, nullptr, nullptr, &parts.view),
              HALYARD_OK);
    EXPECT_TRUE(same_rows(whole, parts));
}

TEST(Stack, EveryPresetInAnyForm) {
    int number = 0;
    for (const std::string &preset : block_presets()) {
        for (const Dtype tables : all_dtypes) {
            for (const Dtype type : all_dtypes) {
                for (const bool all : {false, true}) {
                    if (++number % every != 0) {
                        continue;
                    }
                    StackForm form = preset_stack(preset);
                    form.tables = tables;
                    form.table_gap = number % 3;
                    form.tied = number % 2 == 0;
                    form.softcap = number % 4 == 1 ? 2.5f : form.softcap;
                    form.block.matrices = tables;
                    form.block.seed = static_cast<std::uint64_t>(number);
                    const Stack stack(form);
                    const bool batched = number % 3 != 0;
                    const std::int64_t tokens = 1 + number % 6, batch = batched ? 1 + number % 3 : 1;
                    std::vector<Ids> sequences;
                    std::vector<StackResult> expected;
                    Matrix expected_logits;
                    for (std::int64_t i = 0; i < batch; i++) {
                        sequences.push_back(some_ids(tokens, form.vocab, static_cast<std::uint64_t>(number + i)));
                        expected.push_back(halyard::tests::stack(stack.values, sequences.back(), rounding_of(stack)));
                        const Matrix &one = expected.back().logits;
                        expected_logits.insert(expected_logits.end(), all ? one.begin() : one.end() - 1, one.end());
                    }
                    const IdTensor ids(sequences, batched, number % 2 == 0, number % 4 == 3 ? 5 : 0);
                    Shape leading = batched ? Shape{batch} : Shape{};
                    if (all) {
                        leading.push_back(tokens);
                    }
                    const auto logits = logits_tensor(stack, type, leading, number % 5);
                    for (const halyard_isa isa : supported_isas()) {
                        const Context context(isa);
                        for (const bool watched : {false, true}) {
                            Observed observed;
                            halyard_stack_options options{};
                            options.all_logits = all ? 1 : 0;
                            options.observer = watched ? Observed::see : nullptr;
                            options.user = &observed;
                            logits->clear();
                            ASSERT_EQ(halyard_stack_forward(context.get(), stack.get(), &ids.view, nullptr, nullptr,
                                                            &options, &logits->view),
                                      HALYARD_OK)
                                << halyard_last_error() << "; " << form.describe();
                            ASSERT_TRUE(as_expected(*logits, expected_logits))
                                << halyard_isa_name(isa) << "; " << form.describe();
                            ASSERT_TRUE(logits->surroundings_intact());
                            ASSERT_EQ(observed.parts.size(), watched ? 4U : 0U);
                            for (std::size_t n = 0; n < observed.parts.size(); n++) {
                                const Observed::Part &part = observed.parts[n];
                                EXPECT_EQ(part.layer, static_cast<std::int64_t>(n));
                                EXPECT_EQ(part.first, 0);
                                ASSERT_EQ(part.batch, batch);
                                ASSERT_EQ(part.tokens, tokens);
                                Matrix hidden;
                                for (const StackResult &one : expected) {
                                    hidden.insert(hidden.end(), one.hidden[n].begin(), one.hidden[n].end());
                                }
                                ASSERT_TRUE(rows_as_expected(Dtype::f32, part.rows, hidden)) << "layer " << n;
                            }
                        }
                    }
                }
            }
        }
    }
}

TEST(Stack, TakesSoftcapsToTheEndsOfTheirRange) {
    for (const float softcap : {1e-30f, 1e30f}) {
        StackForm form = preset_stack("llama");
        form.softcap = softcap;
        const Stack stack(form);
        const Ids ids = some_ids(5, form.vocab, 3);
        const IdTensor id_tensor(ids);
        const Matrix expected = halyard::tests::stack(stack.values, ids).logits;
        const halyard_stack_options options = all_logits();
        for (const halyard_isa isa : product_isas(Dtype::f32, Dtype::f32)) {
            const auto logits = logits_tensor(stack, Dtype::f32, {5});
            ASSERT_EQ(halyard_stack_forward(Context(isa).get(), stack.get(), &id_tensor.view, nullptr, nullptr,
                                            &options, &logits->view),
                      HALYARD_OK)
                << halyard_last_error();
            EXPECT_TRUE(as_expected(*logits, expected)) << halyard_isa_name(isa) << ", softcap " << softcap;
        }
    }
}

TEST(Stack, ConfigurationComesBackComplete) {
    StackForm form = preset_stack("llama");
    const Stack stack(form);
    halyard_stack_config c{};
    ASSERT_EQ(halyard_stack_get_config(stack.get(), &c), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(c.vocab_size, form.vocab);
    EXPECT_EQ(c.hidden_size, 33);
    EXPECT_EQ(c.embedding_multiplier, 1.0f);
    EXPECT_EQ(c.norm, HALYARD_NORM_RMS);
    EXPECT_EQ(c.final_logit_softcapping, 0.0f);
    halyard_stack_destroy(nullptr);
}

TEST(Stack, NothingToDo) {
    const Stack stack(preset_stack("llama"));
    const halyard_stack_options options = all_logits();
    struct {
        Shape ids, logits;
    } const empties[] = {{{0}, {0}}, {{2, 0}, {2, 0}}, {{0, 3}, {0, 3}}};
    for (const auto &empty : empties) {
        IdTensor ids(some_ids(3, 29, 1));
        Shape shape = empty.ids;
        ids.view.ndim = static_cast<int>(shape.size());
        ids.view.shape = shape.data();
        ids.view.data = nullptr;
        const auto logits = logits_tensor(stack, Dtype::f32, empty.logits);
        EXPECT_EQ(halyard_stack_forward(nullptr, stack.get(), &ids.view, nullptr, nullptr, &options, &logits->view),
                  HALYARD_OK)
            << halyard_last_error();
        EXPECT_TRUE(logits->surroundings_intact());
    }
    // Nor is there anything to do without sequences.
    IdTensor ids(some_ids(3, 29, 1));
    Shape shape = {0, 3};
    ids.view.ndim = 2;
    ids.view.shape = shape.data();
    const auto logits = logits_tensor(stack, Dtype::f32, {0});
    EXPECT_EQ(halyard_stack_forward(nullptr, stack.get(), &ids.view, nullptr, nullptr, nullptr, &logits->view),
              HALYARD_OK)
        << halyard_last_error();
}

// ---- With a cache ------------------------------------------------------------------------------------------------

TEST(StackCached, GeneratesWhatTheWholeSequenceGives) {
    for (const std::string &preset : block_presets()) {
        const Stack stack(preset_stack(preset));
        const Ids ids = some_ids(25, stack.form.vocab, 7);
        for (const halyard_isa isa : product_isas(Dtype::f32, Dtype::f32)) {
            const Context context(isa);
            const auto whole = logits_of(stack, ids, context.get());
            for (const std::int64_t prompt : {1, 9, 24}) {
                const BlockCache cache(stack.form.block, Dtype::f32, 2, 1, 25);
                ASSERT_EQ(next_logits(stack, Ids(ids.begin(), ids.begin() + prompt), cache, 0, context.get()),
                          whole->row_values(prompt - 1))
                    << preset;
                for (std::int64_t t = prompt; t < 25; t++) {
                    ASSERT_EQ(next_logits(stack, {ids[static_cast<std::size_t>(t)]}, cache, 0, context.get()),
                              whole->row_values(t))
                        << preset << ", token " << t;
                }
                EXPECT_EQ(cache.length(0, 0), 25);
                EXPECT_EQ(cache.length(1, 0), 25);
            }
        }
    }
}

TEST(StackCached, OfSixteenBits) {
    for (const Dtype stored : {Dtype::f16, Dtype::bf16}) {
        StackForm form = preset_stack("llama");
        form.tables = form.block.matrices = stored;
        const Stack stack(form);
        const Ids ids = some_ids(20, form.vocab, 9);
        const Matrix expected = halyard::tests::stack(stack.values, ids, rounding_of(stack, stored)).logits;
        for (const halyard_isa isa : supported_isas()) {
            const Context context(isa);
            const BlockCache cache(form.block, stored, 2, 1, 20);
            for (std::size_t t = 0; t < ids.size(); t += 4) {
                const Row logits = next_logits(
                    stack,
                    Ids(ids.begin() + static_cast<std::ptrdiff_t>(t), ids.begin() + static_cast<std::ptrdiff_t>(t) + 4),
                    cache, 0, context.get());
                ASSERT_TRUE(rows_as_expected(Dtype::f32, {logits}, {expected[t + 3]}))
                    << name_of(stored) << ", token " << t + 3;
            }
        }
    }
}

TEST(StackCached, LongPromptsGoInPartsWithoutATrace) {
    for (const std::string &preset : {std::string("llama"), std::string("gpt2"), std::string("gemma")}) {
        if (emulated && preset != "gemma") {
            continue;
        }
        StackForm form = preset_stack(preset);
        form.block.config.max_position_embeddings = form.block.config.rope.rope_theta != 0 ? 1200 : 0;
        form.positions = form.positions != 0 ? 1200 : 0;
        const Stack stack(form);
        const std::int64_t tokens = 1100;
        const std::vector<Ids> sequences = {some_ids(tokens, form.vocab, 3), some_ids(tokens, form.vocab, 4)};
        const IdTensor ids(sequences, true, false);
        const Context context(supported_isas().back(), 2);
        const BlockCache cache(form.block, Dtype::f32, 2, 2, 1200), again(form.block, Dtype::f32, 2, 2, 1200);

        const auto in_parts = logits_tensor(stack, Dtype::f32, {2, tokens}),
                   last = logits_tensor(stack, Dtype::f32, {2});
        Observed observed;
        halyard_stack_options options = all_logits();
        options.observer = Observed::see;
        options.user = &observed;
        ASSERT_EQ(halyard_stack_forward(context.get(), stack.get(), &ids.view, cache.get(), nullptr, &options,
                                        &in_parts->view),
                  HALYARD_OK)
            << halyard_last_error();
        ASSERT_EQ(
            halyard_stack_forward(context.get(), stack.get(), &ids.view, again.get(), nullptr, nullptr, &last->view),
            HALYARD_OK)
            << halyard_last_error();
        for (std::int64_t i = 0; i < 2; i++) {
            const auto whole = logits_of(stack, sequences[static_cast<std::size_t>(i)], context.get());
            for (std::int64_t t = 0; t < tokens; t++) {
                ASSERT_EQ(in_parts->row_values(i * tokens + t), whole->row_values(t)) << preset << ", token " << t;
            }
            ASSERT_EQ(last->row_values(i), whole->row_values(tokens - 1)) << preset;
        }
        // The observer saw every part of at most 512 tokens in every layer.
        ASSERT_EQ(observed.parts.size(), 12U);
        for (std::size_t n = 0; n < 12; n++) {
            EXPECT_EQ(observed.parts[n].layer, static_cast<std::int64_t>(n) % 4);
            EXPECT_EQ(observed.parts[n].first, static_cast<std::int64_t>(n) / 4 * 512);
            EXPECT_EQ(observed.parts[n].tokens, n < 8 ? 512 : tokens - 1024);
            EXPECT_EQ(observed.parts[n].batch, 2);
        }
    }
}

TEST(StackCached, SequencesOfDifferentLengths) {
    const Stack stack(preset_stack("qwen"));
    const Context context;
    const BlockCache cache(stack.form.block, Dtype::f32, 3, 4, 64);
    const std::int64_t order[] = {3, 0, 1}, lengths[] = {11, 1, 30};
    std::vector<Ids> all;
    for (int i = 0; i < 3; i++) {
        all.push_back(some_ids(lengths[i] + 8, stack.form.vocab, static_cast<std::uint64_t>(20 + i)));
        next_logits(stack, Ids(all.back().begin(), all.back().begin() + lengths[i]), cache, order[i], context.get());
    }
    // Then all three, three tokens and five.
    std::int64_t done = 0;
    for (const std::int64_t count : {3, 5}) {
        std::vector<Ids> next;
        for (int i = 0; i < 3; i++) {
            const auto first = all[static_cast<std::size_t>(i)].begin() + lengths[i] + done;
            next.emplace_back(first, first + count);
        }
        done += count;
        const IdTensor ids(next, true, true);
        const auto logits = logits_tensor(stack, Dtype::f32, {3});
        ASSERT_EQ(
            halyard_stack_forward(context.get(), stack.get(), &ids.view, cache.get(), order, nullptr, &logits->view),
            HALYARD_OK)
            << halyard_last_error();
        for (int i = 0; i < 3; i++) {
            const Ids &one = all[static_cast<std::size_t>(i)];
            const auto whole = logits_of(stack, Ids(one.begin(), one.begin() + lengths[i] + done), context.get());
            EXPECT_EQ(logits->row_values(i), whole->row_values(lengths[i] + done - 1)) << i;
        }
    }
    EXPECT_EQ(cache.length(0, 2), 0);
    EXPECT_EQ(cache.length(2, 0), 0);  // A layer more than the stack has.
}

TEST(StackCached, TruncatedAndContinuedAnotherWay) {
    const Stack stack(preset_stack("gpt2"));
    const Context context;
    const BlockCache cache(stack.form.block, Dtype::f32, 2, 1, 40);
    const Ids ids = some_ids(20, stack.form.vocab, 31), others = some_ids(6, stack.form.vocab, 32);
    next_logits(stack, ids, cache, 0, context.get());
    for (const std::int64_t kept : {13, 0, 1}) {
        Ids changed(ids.begin(), ids.begin() + kept);
        ASSERT_EQ(halyard_kv_cache_truncate(cache.get(), 0, kept), HALYARD_OK) << halyard_last_error();
        changed.insert(changed.end(), others.begin(), others.end());
        const auto whole = logits_of(stack, changed, context.get());
        EXPECT_EQ(next_logits(stack, others, cache, 0, context.get()), whole->row_values(kept + 5)) << kept;
        ASSERT_EQ(halyard_kv_cache_truncate(cache.get(), 0, 0), HALYARD_OK) << halyard_last_error();
        next_logits(stack, ids, cache, 0, context.get());
    }
}

// ---- Bits --------------------------------------------------------------------------------------------------------

StackForm large_form() {
    StackForm form = preset_stack("gemma");
    form.block.config.hidden_size = 200;
    form.block.config.intermediate_size = 450;
    form.block.config.head_dim = 32;
    form.vocab = 700;
    form.tables = form.block.matrices = Dtype::bf16;
    return form;
}

TEST(StackBits, DoNotDependOnThreads) {
    const Stack stack(large_form());
    const Ids ids = some_ids(90, 700, 5);
    const halyard_isa isa = supported_isas().back();
    const auto serial = logits_of(stack, ids, Context(isa, 1).get());
    for (const int threads : {2, 3, 4}) {
        EXPECT_TRUE(same_rows(*serial, *logits_of(stack, ids, Context(isa, threads).get()))) << threads << " threads";
        const Context context(isa, threads);
        const BlockCache cache(stack.form.block, Dtype::f32, 2, 1, 100);
        next_logits(stack, Ids(ids.begin(), ids.begin() + 80), cache, 0, context.get());
        for (std::int64_t t = 80; t < 90; t++) {
            EXPECT_EQ(next_logits(stack, {ids[static_cast<std::size_t>(t)]}, cache, 0, context.get()),
                      serial->row_values(t))
                << threads << " threads, token " << t;
        }
    }
    ReverseThreads own;
    const Context context(isa, 3);
    ASSERT_EQ(halyard_context_set_parallel_for(context.get(), ReverseThreads::run, &own), HALYARD_OK);
    EXPECT_TRUE(same_rows(*serial, *logits_of(stack, ids, context.get()))) << "own threads";
}

TEST(StackBits, AreTheSameWithEveryFusedInstructionSet) {
    const std::vector<halyard_isa> isas = fused_isas();
    if (isas.size() < 2) {
        GTEST_SKIP() << "this machine runs fewer than two instruction sets with fused multiply-add";
    }
    for (const std::string &preset : block_presets()) {
        const Stack stack(preset_stack(preset));
        const Ids ids = some_ids(13, stack.form.vocab, 8);
        EXPECT_TRUE(same_rows(*logits_of(stack, ids, Context(isas.front()).get()),
                              *logits_of(stack, ids, Context(isas.back()).get())))
            << preset;
    }
}

// Models of two layers: a prompt, and a continuation by way of caches of each type.
TEST(StackBits, AreThoseOfEveryMachine) {
    expect_reference_hashes("stack", [](halyard_isa isa) {
        Hashes hashes;
        const Context context(isa);
        for (const std::string &preset : block_presets()) {
            const Stack stack(preset_stack(preset));
            const Ids ids = some_ids(13, stack.form.vocab, 8);
            BitsHash prompt;
            prompt.add(logits_of(stack, ids, context.get())->all_bits());
            hashes[preset] = prompt.text();
            for (const Dtype type : all_dtypes) {
                const BlockCache cache(stack.form.block, type, stack.form.layers, 1, 13);
                BitsHash steps;
                for (std::size_t first = 0, end = 9; end <= ids.size(); first = end++) {
                    const Ids next(ids.begin() + static_cast<std::ptrdiff_t>(first),
                                   ids.begin() + static_cast<std::ptrdiff_t>(end));
                    const Row logits = next_logits(stack, next, cache, 0, context.get());
                    steps.add(std::vector<float>(logits.begin(), logits.end()));
                }
                hashes[preset + "_cached_" + name_of(type)] = steps.text();
            }
        }
        return hashes;
    });
}

// Activations, too, are bf16, which logits of f32 show to the last bit.
TEST(StackBits, OfBfloat16AreThoseOfEveryMachine) {
    expect_reference_hashes("stack_bf16", [](halyard_isa isa) {
        Hashes hashes;
        for (const std::string &preset : block_presets()) {
            StackForm form = preset_stack(preset);
            form.block.config.hidden_size = 66;
            form.block.config.intermediate_size = 530;  // more inputs than are summed at once
            form.tables = form.block.matrices = Dtype::bf16;
            const Stack stack(form);
            const Ids ids = some_ids(37, stack.form.vocab, 8);
            for (const auto &[name, products] : all_products) {
                const Context context(isa);
                EXPECT_EQ(halyard_context_set_products(context.get(), products), HALYARD_OK);
                BitsHash prompt, steps;
                prompt.add(logits_of(stack, ids, context.get())->all_bits());
                hashes[preset + "_" + name] = prompt.text();
                const BlockCache cache(stack.form.block, Dtype::bf16, stack.form.layers, 1, 40);
                for (std::size_t first = 0, end = 31; end <= ids.size(); first = end++) {
                    const Ids next(ids.begin() + static_cast<std::ptrdiff_t>(first),
                                   ids.begin() + static_cast<std::ptrdiff_t>(end));
                    const Row logits = next_logits(stack, next, cache, 0, context.get());
                    steps.add(std::vector<float>(logits.begin(), logits.end()));
                }
                hashes[preset + "_cached_" + name] = steps.text();
            }
        }
        return hashes;
    });
}

TEST(StackThreads, EachWithACacheOfItsOwn) {
    const Stack stack(large_form());
    const Ids ids = some_ids(30, 700, 6);
    const auto expected = logits_of(stack, ids, Context(supported_isas().back(), 1).get());
    const Context shared;
    std::atomic<int> wrong{0};
    run_at_once(5, [&](int thread) {
        const BlockCache cache(stack.form.block, Dtype::f32, 2, 1, 30);
        const std::int64_t prompt = 5 + 4 * thread;
        if (next_logits(stack, Ids(ids.begin(), ids.begin() + prompt), cache, 0, shared.get()) !=
            expected->row_values(prompt - 1)) {
            wrong++;
        }
        for (std::int64_t t = prompt; t < 30; t++) {
            if (next_logits(stack, {ids[static_cast<std::size_t>(t)]}, cache, 0,
                            thread % 2 == 0 ? shared.get() : nullptr) != expected->row_values(t)) {
                wrong++;
            }
        }
    });
    EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace halyard::tests
