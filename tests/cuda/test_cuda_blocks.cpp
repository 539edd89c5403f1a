// Blocks and stacks on tensors of a CUDA device, by the stand-ins for driver and cuBLASLt: against the float64
// references of the processors' tests, with what lies between the products rounded to the type that it has on a device.
#include "stand_ins.h"
#include "support/stack.h"

#include <sys/mman.h>

#include <cstring>

namespace halyard::tests {
namespace {

constexpr DLDevice other_device = {kDLCUDA, 1}, processor = {kDLCPU, 0};

BlockForm on_device(BlockForm form, bool sources_on_device = true) {
    form.device = cuda_device;
    form.sources_on_device = sources_on_device;
    return form;
}

StackForm on_device(StackForm form, bool sources_on_device = true) {
    form.block = on_device(form.block, sources_on_device);
    return form;
}

void expect_right(const Block &block, BlockCall &call) {
    const Context context;
    const Matrix expected = call.expected();
    ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error() << "; " << block.form.describe();
    ASSERT_TRUE(as_expected(call.y, expected)) << "x " << name_of(call.x.dtype()) << "; " << block.form.describe();
    ASSERT_TRUE(call.surroundings_intact()) << block.form.describe();
}

void expect_message(halyard_status got, halyard_status expected, const std::string &part) {
    EXPECT_EQ(got, expected) << halyard_last_error();
    EXPECT_NE(std::string(halyard_last_error()).find(part), std::string::npos) << halyard_last_error();
}

// ---- Blocks ------------------------------------------------------------------------------------------------------

class CudaBlocks : public testing::TestWithParam<std::string> {};

TEST_P(CudaBlocks, AreRightInEveryType) {
    int number = 0;
    for (const Dtype matrices : all_dtypes) {
        for (const Dtype x : all_dtypes) {
            number++;
            BlockForm form = on_device(preset_block(GetParam()), number % 2 == 0);
            form.matrices = matrices;
            form.vectors = all_dtypes[number % 3];
            form.head_norms = GetParam() == "qwen" && number % 3 != 0;
            form.config.sliding_window = form.config.sliding_window != 0 ? 4 : 0;
            form.joined = number % 4 == 0;
            const Block block(form);
            BlockCall call(block, x, {2, 1 + number % 7});
            ASSERT_NO_FATAL_FAILURE(expect_right(block, call));
        }
    }
}

TEST_P(CudaBlocks, AreRightTokenByToken) {
    for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
        BlockForm form = on_device(preset_block(GetParam()));
        form.config.causal = 1;
        form.config.sliding_window = form.config.sliding_window != 0 ? 5 : 0;
        form.matrices = type;
        form.head_norms = GetParam() == "qwen";
        const Block block(form);
        BlockCall call(block, type, {2, 11});
        for (const Dtype stored : {Dtype::f32, Dtype::f16}) {
            const Context context;
            const BlockCache cache(form, stored, 1, 2, 11);
            call.y.clear();
            ASSERT_NO_FATAL_FAILURE(call.run_in_parts(context.get(), cache, {6, 1, 1, 1, 1, 1}));
            ASSERT_TRUE(as_expected(call.y, call.expected(stored)))
                << "cached in " << name_of(stored) << "; " << form.describe();
            EXPECT_EQ(cache.length(0, 0), 11);
            EXPECT_EQ(cache.length(0, 1), 11);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Presets, CudaBlocks, testing::ValuesIn(block_presets()),
                         [](const auto &info) { return info.param; });

TEST(CudaBlock, HasEveryNormAtEveryPlace) {
    int number = 0;
    for (const halyard_norm norm : {HALYARD_NORM_NONE, HALYARD_NORM_RMS, HALYARD_NORM_LAYER}) {
        for (const halyard_norm_placement placement :
             {HALYARD_PRE_NORM, HALYARD_POST_NORM, HALYARD_POST_SUBLAYER_NORM, HALYARD_SANDWICH_NORM}) {
            for (const bool gated : {false, true}) {
                number++;
                const halyard_activation activation = gated ? HALYARD_GELU_TANH : HALYARD_RELU;
                BlockForm form = mixed_block(number, norm, placement, activation, gated);
                form = on_device(form, number % 3 != 0);
                const Block block(form);
                const Shape leading = number % 2 == 0 ? Shape{3, 5} : Shape{1 + number % 9};
                for (const Dtype type : {form.matrices, all_dtypes[number % 3]}) {
                    BlockCall call(block, type, leading, number % 3, number % 4, static_cast<std::uint64_t>(number));
                    ASSERT_NO_FATAL_FAILURE(expect_right(block, call));
                }
            }
        }
    }
}

TEST(CudaBlock, WorksInPlace) {
    int number = 0;
    for (const halyard_norm_placement placement :
         {HALYARD_PRE_NORM, HALYARD_POST_NORM, HALYARD_POST_SUBLAYER_NORM, HALYARD_SANDWICH_NORM}) {
        for (const Dtype type : {Dtype::f32, Dtype::f16}) {
            BlockForm form = mixed_block(++number, HALYARD_NORM_RMS, placement, HALYARD_SILU, true);
            form.matrices = type;
            const Block block(on_device(form));
            BlockCall call(block, type, {2, 6}, 3, 3);
            ASSERT_EQ(call.run(nullptr), HALYARD_OK) << halyard_last_error();
            ASSERT_EQ(halyard_block_forward(nullptr, block.get(), &call.x.view, nullptr, 0, nullptr, &call.x.view),
                      HALYARD_OK)
                << halyard_last_error();
            EXPECT_TRUE(same_rows(call.y, call.x)) << form.describe();
            EXPECT_TRUE(call.surroundings_intact());
        }
    }
}

TEST(CudaBlock, HasNothingToDoWithoutTokens) {
    const Block block(on_device(preset_block("llama")));
    const BlockCache cache(block.form, Dtype::f32, 1, 2, 20);
    for (const Shape &leading : {Shape{0}, Shape{0, 3}, Shape{2, 0}}) {
        BlockCall call(block, Dtype::f32, leading);
        EXPECT_EQ(call.run(nullptr), HALYARD_OK) << halyard_last_error();
        EXPECT_EQ(call.run(nullptr, cache), HALYARD_OK) << halyard_last_error();
        EXPECT_EQ(cache.length(0, 0), 0);
    }
}

TEST(CudaBlock, AppendsToTheSequencesOfItsLayer) {
    const Block block(on_device(preset_block("llama")));
    const Context context;
    const BlockCache cache(block.form, Dtype::f32, 3, 4, 20);
    // Sequences with 4 and 0 tokens so far, then 6 more for both, in an order of their own.
    const std::int64_t order[] = {3, 1}, lengths[] = {4, 0};
    BlockCall together(block, Dtype::f32, {2, 6}, 0, 0, 77);
    Matrix expected;
    for (int i = 0; i < 2; i++) {
        BlockCall alone(block, Dtype::f32, {lengths[i] + 6}, 0, 0, static_cast<std::uint64_t>(i + 1));
        for (std::int64_t t = 0; t < 6; t++) {
            std::memcpy(together.x.at(6 * i + t, 0), alone.x.at(lengths[i] + t, 0), 33 * sizeof(float));
        }
        const Matrix all = alone.expected();
        expected.insert(expected.end(), all.begin() + lengths[i], all.end());
        const TokenView prompt(alone.x.view, alone.x.strides(), 0, lengths[i]);
        TokenView result(alone.y.view, alone.y.strides(), 0, lengths[i]);
        ASSERT_EQ(
            halyard_block_forward(context.get(), block.get(), &prompt.view, cache.get(), 1, &order[i], &result.view),
            HALYARD_OK)
            << halyard_last_error();
    }
    ASSERT_EQ(together.run(context.get(), cache, 1, order), HALYARD_OK) << halyard_last_error();
    EXPECT_TRUE(as_expected(together.y, expected));
    for (const std::int64_t sequence : {0, 1, 2, 3}) {
        EXPECT_EQ(cache.length(1, sequence), sequence == 3 ? 10 : sequence == 1 ? 6 : 0);
        EXPECT_EQ(cache.length(0, sequence) + cache.length(2, sequence), 0);
    }
}

// ---- Memory, graphs ----------------------------------------------------------------------------------------------

BlockForm typical_block(Dtype type) {
    BlockForm form = on_device(preset_block("gemma"));
    form.matrices = type;
    form.head_norms = true;
    return form;
}

TEST(CudaBlockMemory, IsFreed) {
    halyard_context_release_scratch(nullptr);
    const long before = allocated();
    for (const bool sources_on_device : {false, true}) {
        StackForm form = on_device(preset_stack("gemma"), sources_on_device);
        form.block.matrices = Dtype::bf16;
        form.tied = sources_on_device;
        const Stack stack(form);
        EXPECT_GT(allocated(), before);
    }
    halyard_context_release_scratch(nullptr);
    EXPECT_EQ(allocated(), before);
}

TEST(CudaBlockMemory, SteadyStateAllocatesNothingAndCanBeCaptured) {
    for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
        const Block block(typical_block(type));
        const Context context;
        BlockCall call(block, type, {2, 5});
        const BlockCache cache(block.form, type, 1, 2, 20);
        {
            const Capture capture;
            expect_message(call.run(context.get(), cache), HALYARD_DEVICE_ERROR, "the stream is being captured");
            EXPECT_EQ(cache.length(0, 0), 0);
        }
        ASSERT_EQ(call.run(context.get(), cache), HALYARD_OK) << halyard_last_error();
        const long before = allocations();
        {
            const Capture capture;
            EXPECT_EQ(call.run(context.get(), cache), HALYARD_OK) << halyard_last_error();
        }
        EXPECT_EQ(call.run(context.get(), cache), HALYARD_OK) << halyard_last_error();
        EXPECT_EQ(allocations(), before);
        EXPECT_EQ(cache.length(0, 1), 15);
    }
}

TEST(CudaBlockMemory, FailedCallsWriteAndAppendNothing) {
    for (const Dtype x : {Dtype::f32, Dtype::bf16}) {
        const Block block(typical_block(Dtype::bf16));
        BlockCall call(block, x, {2, 3});
        const BlockCache cache(block.form, Dtype::f32, 2, 2, 20);
        ASSERT_EQ(call.run(nullptr, cache, 1), HALYARD_OK) << halyard_last_error();
        long failures = 0;
        for (bool failed = true; failed; failures += failed ? 1 : 0) {
            const Context context;  // without scratch so far
            call.y.clear();
            const std::vector<std::uint8_t> before = call.y.snapshot();
            const FewAllocations few(failures);
            const halyard_status status = call.run(context.get(), cache, 1);
            failed = status != HALYARD_OK;
            if (failed) {
                EXPECT_TRUE(refused(status, HALYARD_OUT_OF_MEMORY, "halyard_block_forward", "allocating"));
                EXPECT_TRUE(call.y.snapshot() == before);
            }
            EXPECT_EQ(cache.length(1, 0), failed ? 3 : 6) << failures;
            EXPECT_EQ(cache.length(1, 1), failed ? 3 : 6) << failures;
            EXPECT_EQ(cache.length(0, 0), 0);
        }
        EXPECT_GE(failures, 2);
    }
}

TEST(CudaBlockMemory, CreationFailsCleanly) {
    for (const bool sources_on_device : {false, true}) {
        StackForm form = on_device(preset_stack("gemma"), sources_on_device);
        form.block.matrices = Dtype::bf16;
        const BlockTensors tensors(form.block);
        const Context context;
        const long before = allocated();
        long failures = 0;
        for (bool failed = true; failed; failures += failed ? 1 : 0) {
            halyard_block *block = nullptr;
            const FewAllocations few(failures);
            const halyard_status status =
                halyard_block_create(context.get(), &form.block.config, &tensors.weights, &block);
            failed = status != HALYARD_OK;
            if (failed) {
                EXPECT_TRUE(refused(status, HALYARD_OUT_OF_MEMORY, "halyard_block_create", "allocating"));
                EXPECT_EQ(block, nullptr);
            }
            halyard_block_destroy(block);
            halyard_context_release_scratch(context.get());
            EXPECT_EQ(allocated(), before) << failures;
        }
        EXPECT_GE(failures, 8);  // angles, vectors in two types, four matrices, and scratch memory

        form.tied = false;
        form.positions = 20;
        const Stack stack(form);
        const halyard_block *const layers[] = {stack.blocks[0]->get()};
        halyard_stack_weights weights{};
        weights.embed_tokens = &stack.embed_tokens->view;
        weights.embed_positions = &stack.embed_positions->view;
        weights.lm_head = &stack.lm_head->view;
        const long with_stack = allocated();
        failures = 0;
        for (bool failed = true; failed; failures += failed ? 1 : 0) {
            halyard_stack *made = nullptr;
            const FewAllocations few(failures);
            const halyard_status status =
                halyard_stack_create(context.get(), &stack.values.config, &weights, layers, 1, &made);
            failed = status != HALYARD_OK;
            if (failed) {
                EXPECT_TRUE(refused(status, HALYARD_OUT_OF_MEMORY, "halyard_stack_create", "allocating"));
                EXPECT_EQ(made, nullptr);
            }
            halyard_stack_destroy(made);
            halyard_context_release_scratch(context.get());
            EXPECT_EQ(allocated(), with_stack) << failures;
        }
        EXPECT_GE(failures, sources_on_device ? 4 : 6);
    }
}

// ---- Stacks ------------------------------------------------------------------------------------------------------

/** The type of a stack's residual stream. */
Rounding rounding_of(const Stack &stack, Dtype stored = Dtype::f32) {
    return {stored, stack.form.block.matrices};
}

class CudaStacks : public testing::TestWithParam<std::string> {};

TEST_P(CudaStacks, AreRightInEveryForm) {
    int number = 0;
    for (const Dtype matrices : all_dtypes) {
        for (const bool all : {false, true}) {
            number++;
            StackForm form = on_device(preset_stack(GetParam()), number % 3 != 0);
            form.block.matrices = matrices;
            form.tables = number % 4 == 1 ? all_dtypes[number % 3] : matrices;
            form.table_gap = number % 3;
            form.tied = number % 2 == 0;
            form.softcap = number % 4 == 1 ? 2.5f : form.softcap;
            form.block.seed = static_cast<std::uint64_t>(number);
            const Stack stack(form);
            const std::int64_t batch = 1 + number % 3, tokens = 1 + 7 * (number % 4);
            std::vector<Ids> sequences;
            std::vector<StackResult> expected;
            Matrix expected_logits;
            for (std::int64_t i = 0; i < batch; i++) {
                sequences.push_back(some_ids(tokens, form.vocab, static_cast<std::uint64_t>(number + i)));
                Rounding rounding = rounding_of(stack);
                expected.push_back(halyard::tests::stack(stack.values, sequences.back(), rounding));
                const Matrix &one = expected.back().logits;
                expected_logits.insert(expected_logits.end(), all ? one.begin() : one.end() - 1, one.end());
            }
            const IdTensor ids(sequences, true, number % 2 == 0, number % 4 == 3 ? 5 : 0);
            Shape leading = {batch};
            if (all) {
                leading.push_back(tokens);
            }
            const Context context;
            for (const Dtype type : {Dtype::f32, all_dtypes[number % 3]}) {
                for (const DLDevice &place : {processor, cuda_device}) {
                    const auto logits = logits_tensor(stack, type, leading, number % 5);
                    logits->view.device = place;
                    Observed observed;
                    halyard_stack_options options{};
                    options.all_logits = all ? 1 : 0;
                    options.observer = place.device_type == kDLCPU ? Observed::see : nullptr;
                    options.user = &observed;
                    ASSERT_EQ(halyard_stack_forward(context.get(), stack.get(), &ids.view, nullptr, nullptr, &options,
                                                    &logits->view),
                              HALYARD_OK)
                        << halyard_last_error() << "; " << form.describe();
                    ASSERT_TRUE(as_expected(*logits, expected_logits)) << form.describe();
                    ASSERT_TRUE(logits->surroundings_intact());
                    ASSERT_EQ(observed.parts.size(), place.device_type == kDLCPU ? 4U : 0U);
                    for (std::size_t n = 0; n < observed.parts.size(); n++) {
                        const Observed::Part &part = observed.parts[n];
                        EXPECT_EQ(part.layer, static_cast<std::int64_t>(n));
                        EXPECT_EQ(part.type, matrices);
                        EXPECT_EQ(part.device.device_type, kDLCUDA);
                        Matrix hidden;
                        for (const StackResult &one : expected) {
                            hidden.insert(hidden.end(), one.hidden[n].begin(), one.hidden[n].end());
                        }
                        ASSERT_TRUE(rows_as_expected(matrices, part.rows, hidden))
                            << "layer " << n << "; " << form.describe();
                    }
                }
            }
        }
    }
}

TEST_P(CudaStacks, GenerateTokenByToken) {
    for (const Dtype type : {Dtype::f32, Dtype::f16}) {
        StackForm form = on_device(preset_stack(GetParam()));
        form.block.matrices = form.tables = type;
        const Stack stack(form);
        const Context context;
        const BlockCache cache(form.block, type, 2, 2, 20);
        const std::vector<Ids> sequences = {some_ids(14, form.vocab, 7), some_ids(14, form.vocab, 8)};
        std::vector<Matrix> expected;
        for (const Ids &ids : sequences) {
            expected.push_back(halyard::tests::stack(stack.values, ids, rounding_of(stack, type)).logits);
        }
        for (std::size_t first = 0, end = 9; end <= 14; first = end++) {
            std::vector<Ids> next;
            for (const Ids &ids : sequences) {
                next.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(first),
                                  ids.begin() + static_cast<std::ptrdiff_t>(end));
            }
            const IdTensor ids(next, true, true);
            const auto logits = logits_tensor(stack, Dtype::f32, {2});
            ASSERT_EQ(halyard_stack_forward(context.get(), stack.get(), &ids.view, cache.get(), nullptr, nullptr,
                                            &logits->view),
                      HALYARD_OK)
                << halyard_last_error();
            ASSERT_TRUE(as_expected(*logits, {expected[0][end - 1], expected[1][end - 1]}))
                << "token " << end << "; " << form.describe();
        }
        EXPECT_EQ(cache.length(0, 0), 14);
        EXPECT_EQ(cache.length(1, 1), 14);
    }
}

INSTANTIATE_TEST_SUITE_P(Presets, CudaStacks, testing::ValuesIn(block_presets()),
                         [](const auto &info) { return info.param; });

TEST(CudaStack, TakesLongPromptsInParts) {
    StackForm form = on_device(preset_stack("gpt2"));
    form.positions = 520;
    form.layers = 1;
    const Stack stack(form);
    const Ids ids = some_ids(515, form.vocab, 3);
    const IdTensor tensor(ids);
    const BlockCache cache(form.block, Dtype::f32, 1, 1, 520);
    const auto logits = logits_tensor(stack, Dtype::f32, {});
    ASSERT_EQ(halyard_stack_forward(nullptr, stack.get(), &tensor.view, cache.get(), nullptr, nullptr, &logits->view),
              HALYARD_OK)
        << halyard_last_error();
    EXPECT_TRUE(as_expected(*logits, {halyard::tests::stack(stack.values, ids).logits.back()}));
    EXPECT_EQ(cache.length(0, 0), 515);
}

// Blocks in different types leave f32 for the stream between them.
TEST(CudaStack, OfBlocksOfDifferentTypesComputesInF32) {
    StackForm form = on_device(preset_stack("llama"));
    const Stack parts(form);
    BlockForm narrow = form.block;
    narrow.matrices = Dtype::bf16;
    const Block second(narrow);
    const halyard_block *const blocks[] = {parts.blocks[0]->get(), second.get()};
    halyard_stack_weights weights{};
    weights.embed_tokens = &parts.embed_tokens->view;
    halyard_stack_config config = parts.values.config;
    halyard_stack *stack = nullptr;
    ASSERT_EQ(halyard_stack_create(nullptr, &config, &weights, blocks, 2, &stack), HALYARD_OK) << halyard_last_error();
    Observed observed;
    halyard_stack_options options = all_logits();
    options.observer = Observed::see;
    options.user = &observed;
    const Ids ids = some_ids(5, form.vocab, 4);
    const IdTensor tensor(ids);
    const auto logits = logits_tensor(parts, Dtype::f32, {5});
    EXPECT_EQ(halyard_stack_forward(nullptr, stack, &tensor.view, nullptr, nullptr, &options, &logits->view),
              HALYARD_OK)
        << halyard_last_error();
    halyard_stack_destroy(stack);
    ASSERT_EQ(observed.parts.size(), 4U);
    EXPECT_EQ(observed.parts[2].type, Dtype::f32);
    StackValues values = parts.values;
    values.blocks[1] = &second.values;
    values.norm = {};
    values.lm_head = WeightMatrix();
    values.lm_head.in = config.hidden_size;
    values.lm_head.out = config.vocab_size;
    for (std::int64_t k = 0; k < config.hidden_size; k++) {
        for (const Row &row : values.embed_tokens) {
            values.lm_head.values.push_back(row[static_cast<std::size_t>(k)]);
        }
    }
    const StackResult expected = halyard::tests::stack(values, ids);
    EXPECT_TRUE(rows_as_expected(Dtype::f32, observed.parts[2].rows, expected.hidden[2]));
    EXPECT_TRUE(as_expected(*logits, expected.logits));
}

// Rows that the kernel's 32-bit indices do not reach from the first one.
TEST(CudaStack, ReadsTablesOfAnySize) {
    constexpr std::int64_t pitch = std::int64_t{1} << 30, vocab = 4;
    StackForm form = on_device(preset_stack("llama"));
    form.vocab = vocab;
    form.tied = false;
    const Stack near_rows(form);
    constexpr std::size_t bytes = std::size_t{vocab} * pitch * sizeof(float);
    void *const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    const std::int64_t width = form.block.config.hidden_size;
    for (std::int64_t row = 0; row < vocab; row++) {
        std::memcpy(static_cast<float *>(memory) + row * pitch, near_rows.embed_tokens->at(row, 0),
                    static_cast<std::size_t>(width) * sizeof(float));
    }
    std::int64_t shape[] = {vocab, width}, strides[] = {pitch, 1};
    DLTensor table{memory, cuda_device, 2, dlpack_type(Dtype::f32), shape, strides, 0};
    halyard_stack_weights weights{};
    weights.embed_tokens = &table;
    weights.lm_head = &near_rows.lm_head->view;
    const halyard_block *const blocks[] = {near_rows.blocks[0]->get(), near_rows.blocks[1]->get()};
    halyard_stack *stack = nullptr;
    ASSERT_EQ(halyard_stack_create(nullptr, &near_rows.values.config, &weights, blocks, 2, &stack), HALYARD_OK)
        << halyard_last_error();
    Observed near_observed, observed;
    const IdTensor ids({3, 0, 2, 3, 1});
    const auto logits = logits_tensor(near_rows, Dtype::f32, {});
    halyard_stack_options options{};
    options.observer = Observed::see;
    options.user = &observed;
    EXPECT_EQ(halyard_stack_forward(nullptr, stack, &ids.view, nullptr, nullptr, &options, &logits->view), HALYARD_OK)
        << halyard_last_error();
    options.user = &near_observed;
    EXPECT_EQ(halyard_stack_forward(nullptr, near_rows.get(), &ids.view, nullptr, nullptr, &options, &logits->view),
              HALYARD_OK)
        << halyard_last_error();
    halyard_stack_destroy(stack);
    munmap(memory, bytes);
    ASSERT_FALSE(observed.parts.empty());
    EXPECT_EQ(observed.parts[0].rows, near_observed.parts[0].rows);
}

TEST(CudaStackMemory, SteadyStateAllocatesNothingAndCanBeCaptured) {
    for (const Dtype type : {Dtype::f32, Dtype::bf16}) {
        StackForm form = on_device(preset_stack("gemma"));
        form.block.matrices = form.tables = type;
        const Stack stack(form);
        const Context context;
        const BlockCache cache(form.block, type, 2, 1, 30);
        const IdTensor prompt(some_ids(9, form.vocab, 1)), next({5});
        const auto logits = logits_tensor(stack, Dtype::bf16, {});
        const auto run = [&](const IdTensor &ids) {
            return halyard_stack_forward(context.get(), stack.get(), &ids.view, cache.get(), nullptr, nullptr,
                                         &logits->view);
        };
        // In memory of the process, for which the call waits.
        ASSERT_EQ(run(prompt), HALYARD_OK) << halyard_last_error();
        ASSERT_EQ(run(next), HALYARD_OK) << halyard_last_error();
        const long before = allocations();
        {
            const Capture capture;
            expect_message(run(next), HALYARD_DEVICE_ERROR, "logits is on the CPU");
        }
        logits->view.device = cuda_device;
        {
            const Capture capture;
            EXPECT_EQ(run(next), HALYARD_OK) << halyard_last_error();
        }
        EXPECT_EQ(run(next), HALYARD_OK) << halyard_last_error();
        EXPECT_EQ(run(prompt), HALYARD_OK) << halyard_last_error();
        EXPECT_EQ(allocations(), before);
        EXPECT_EQ(cache.length(1, 0), 21);
    }
}

TEST(CudaStackMemory, FailedCallsWriteAndAppendNothing) {
    StackForm form = on_device(preset_stack("gemma"));
    form.positions = 30;
    const Stack stack(form);
    const BlockCache cache(form.block, Dtype::f32, 3, 2, 30);
    const IdTensor start({{1, 2}, {3, 4}}, true, true), ids({{5, 6, 7}, {8, 9, 1}}, true, true);
    for (const DLDevice &place : {processor, cuda_device}) {
        const auto logits = logits_tensor(stack, Dtype::bf16, {2});
        logits->view.device = place;
        const auto run = [&](const halyard_context *context, const IdTensor &tensor) {
            return halyard_stack_forward(context, stack.get(), &tensor.view, cache.get(), nullptr, nullptr,
                                         &logits->view);
        };
        for (const std::int64_t sequence : {0, 1}) {
            ASSERT_EQ(halyard_kv_cache_truncate(cache.get(), sequence, 0), HALYARD_OK);
        }
        ASSERT_EQ(run(nullptr, start), HALYARD_OK) << halyard_last_error();
        long failures = 0;
        for (bool failed = true; failed; failures += failed ? 1 : 0) {
            const Context context;
            logits->clear();
            const std::vector<std::uint8_t> before = logits->snapshot();
            const FewAllocations few(failures);
            const halyard_status status = run(context.get(), ids);
            failed = status != HALYARD_OK;
            if (failed) {
                EXPECT_TRUE(refused(status, HALYARD_OUT_OF_MEMORY, "halyard_stack_forward", "allocating"));
                EXPECT_TRUE(logits->snapshot() == before);
            }
            for (const std::int64_t layer : {0, 1}) {
                for (const std::int64_t sequence : {0, 1}) {
                    EXPECT_EQ(cache.length(layer, sequence), failed ? 2 : 5) << failures;
                }
            }
        }
        EXPECT_GE(failures, 3);
    }
}

// ---- Refusals ----------------------------------------------------------------------------------------------------

TEST(CudaBlockArguments, AreWhereTheBlockIs) {
    const Block here(preset_block("llama")), there(on_device(preset_block("llama")));
    const BlockCache cache_here(here.form, Dtype::f32, 1, 1, 9), cache_there(there.form, Dtype::f32, 1, 1, 9);
    BlockCall on_cpu(here, Dtype::f32, {3}), on_gpu(there, Dtype::f32, {3});
    const auto run = [](const Block &block, BlockCall &call, const BlockCache *cache = nullptr) {
        const std::vector<std::uint8_t> before = call.y.snapshot();
        const halyard_status status = halyard_block_forward(
            nullptr, block.get(), &call.x.view, cache != nullptr ? cache->get() : nullptr, 0, nullptr, &call.y.view);
        EXPECT_TRUE(call.y.snapshot() == before);
        return status;
    };
    const auto refuses = [&](halyard_status status, const char *part) {
        expect_message(status, HALYARD_UNSUPPORTED, std::string("halyard_block_forward: ") + part);
    };
    refuses(run(there, on_cpu), "block is on CUDA device 0, but x is on the CPU");
    refuses(run(here, on_gpu), "block is on the CPU, but x is on CUDA device 0");
    refuses(run(here, on_cpu, &cache_there), "x is on the CPU, but the cache is on a CUDA device");
    refuses(run(there, on_gpu, &cache_here), "x is on a CUDA device, but the cache is on the CPU");
    on_gpu.y.view.device = processor;
    refuses(run(there, on_gpu), "y is on the CPU, but x is on CUDA device 0");
    on_gpu.x.view.device = on_gpu.y.view.device = other_device;
    refuses(run(there, on_gpu), "block is on CUDA device 0, but x is on CUDA device 1");
    EXPECT_EQ(cache_here.length(0, 0) + cache_there.length(0, 0), 0);
}

TEST(CudaBlockArguments, OfMakingAreInOnePlace) {
    const auto refuses = [](halyard_status expected, const char *part, const BlockForm &form, auto change) {
        BlockTensors tensors(form);
        change(tensors.weights);
        halyard_block *block = nullptr;
        expect_message(halyard_block_create(nullptr, &form.config, &tensors.weights, &block), expected,
                       std::string("halyard_block_create: ") + part);
        EXPECT_EQ(block, nullptr);
    };
    const BlockForm here = preset_block("llama"), there = on_device(here);
    refuses(HALYARD_UNSUPPORTED, "k_proj is on CUDA device 0, but q_proj is on the CPU", here,
            [](halyard_block_weights &w) { const_cast<DLTensor *>(w.k_proj)->device = cuda_device; });
    refuses(HALYARD_UNSUPPORTED, "ffn_norm is on the CPU, but q_proj is on CUDA device 0", there,
            [](halyard_block_weights &w) { const_cast<DLTensor *>(w.ffn_norm)->device = processor; });
    refuses(HALYARD_UNSUPPORTED, "o_proj is on CUDA device 0, from which", there,
            [](halyard_block_weights &w) { w.device = processor; });
    refuses(HALYARD_UNSUPPORTED, "o_proj is on CUDA device 0, from which", there,
            [](halyard_block_weights &w) { w.device = other_device; });
    refuses(HALYARD_UNSUPPORTED, "device has type 7", here, [](halyard_block_weights &w) {
        w.device = {kDLVulkan, 0};
    });
    refuses(HALYARD_NO_DEVICE, "there is no CUDA device 5", here, [](halyard_block_weights &w) {
        w.device = {kDLCUDA, 5};
    });
}

TEST(CudaStackArguments, OfMakingAreWhereTheBlocksAre) {
    const StackForm form = preset_stack("llama");
    const Stack here(form), there(on_device(form));
    halyard_stack_weights weights{};
    weights.embed_tokens = &here.embed_tokens->view;
    const auto refuses = [&](const char *part, const Block &first, const Block &second) {
        const halyard_block *const blocks[] = {first.get(), second.get()};
        halyard_stack *stack = nullptr;
        expect_message(halyard_stack_create(nullptr, &here.values.config, &weights, blocks, 2, &stack),
                       HALYARD_UNSUPPORTED, std::string("halyard_stack_create: ") + part);
        EXPECT_EQ(stack, nullptr);
    };
    refuses("blocks[1] is on CUDA device 0, but blocks[0] is on the CPU", *here.blocks[0], *there.blocks[1]);
    refuses("blocks[1] is on the CPU, but blocks[0] is on CUDA device 0", *there.blocks[0], *here.blocks[1]);
    weights.lm_head = &there.embed_tokens->view;
    refuses("lm_head is on CUDA device 0, but embed_tokens is on the CPU", *there.blocks[0], *there.blocks[1]);
    weights.lm_head = nullptr;
    weights.embed_tokens = &there.embed_tokens->view;
    refuses("embed_tokens is on CUDA device 0, but blocks[0] is on the CPU", *here.blocks[0], *here.blocks[1]);
    there.embed_tokens->view.device = other_device;
    refuses("embed_tokens is on CUDA device 1, but blocks[0] is on CUDA device 0", *there.blocks[0], *there.blocks[1]);
}

TEST(CudaStackArguments, AreWhereTheStackIs) {
    const StackForm form = preset_stack("llama");
    const Stack here(form), there(on_device(form));
    const BlockCache cache_here(here.form.block, Dtype::f32, 2, 1, 9),
        cache_there(there.form.block, Dtype::f32, 2, 1, 9);
    const auto refuses = [&](const char *part, const Stack &stack, const BlockCache &cache, DLDevice ids_device,
                             DLDevice logits_device) {
        IdTensor ids({1, 2, 3});
        ids.view.device = ids_device;
        const auto logits = logits_tensor(stack, Dtype::f32, {});
        logits->view.device = logits_device;
        const std::vector<std::uint8_t> before = logits->snapshot();
        expect_message(
            halyard_stack_forward(nullptr, stack.get(), &ids.view, cache.get(), nullptr, nullptr, &logits->view),
            HALYARD_UNSUPPORTED, std::string("halyard_stack_forward: ") + part);
        EXPECT_TRUE(logits->snapshot() == before);
        EXPECT_EQ(cache.length(0, 0), 0);
    };
    refuses("logits is on CUDA device 0, but stack is on the CPU", here, cache_here, processor, cuda_device);
    refuses("logits is on CUDA device 1, but stack is on CUDA device 0", there, cache_there, processor, other_device);
    refuses("cache is on CUDA device 0, but stack is on the CPU", here, cache_there, processor, processor);
    refuses("cache is on the CPU, but stack is on CUDA device 0", there, cache_here, processor, cuda_device);
    refuses("input_ids is on device type 2, but must be on the CPU (kDLCPU)", there, cache_there, cuda_device, cuda_device);
    // An id that there is not is seen before anything is done.
    IdTensor ids({1, 29});
    const auto logits = logits_tensor(there, Dtype::f32, {});
    expect_message(
        halyard_stack_forward(nullptr, there.get(), &ids.view, cache_there.get(), nullptr, nullptr, &logits->view),
        HALYARD_INVALID_ARGUMENT, "input_ids[1] is 29, but vocab_size is 29");
    EXPECT_EQ(cache_there.length(0, 0), 0);
}

}  // namespace
}  // namespace halyard::tests
