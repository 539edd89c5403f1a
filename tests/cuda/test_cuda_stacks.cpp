// Stacks on a CUDA device, by the stand-ins for driver and cuBLASLt or the originals: against the float64 references of
// the processors' tests, with the residual stream rounded to the type that it has on a device.
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <utility>

#include "blocks_on_device.h"
#include "support/device_hooks.h"

namespace halyard::tests {
namespace {

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
                    ASSERT_EQ(finished(halyard_stack_forward(context.get(), stack.get(), &ids.view, nullptr, nullptr,
                                                             &options, &logits->view)),
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

TEST(CudaStack, DoesNotRoundNormsInF32) {
    for (const Dtype type : {Dtype::f16, Dtype::bf16}) {
        StackForm form = on_device(preset_stack("llama"));
        form.block.config.norm_flags = HALYARD_RMS_UNIT_OFFSET;
        form.block.config.rms_norm_eps = 1e-9f;
        form.block.matrices = form.tables = type;
        form.block.vectors = Dtype::f32;
        form.block.fine_norms = true;
        const Stack stack(form);
        const Ids ids = some_ids(5, form.vocab, 6);
        const IdTensor tensor(ids);
        const auto logits = logits_tensor(stack, Dtype::f32, {});
        ASSERT_EQ(halyard_stack_forward(nullptr, stack.get(), &tensor.view, nullptr, nullptr, nullptr, &logits->view),
                  HALYARD_OK)
            << halyard_last_error();
        EXPECT_TRUE(as_expected(*logits, {halyard::tests::stack(stack.values, ids, rounding_of(stack)).logits.back()}))
            << name_of(type);
    }
}

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
    constexpr std::size_t page = 4096;  // holds a row, and no more is given to the device
    for (std::int64_t row = 0; row < vocab; row++) {
        float *const begin = static_cast<float *>(memory) + row * pitch;
        std::memcpy(begin, near_rows.embed_tokens->at(row, 0), static_cast<std::size_t>(width) * sizeof(float));
        memory_mapped(begin, page);
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
    for (std::int64_t row = 0; row < vocab; row++) {
        memory_unmapping(static_cast<float *>(memory) + row * pitch);
    }
    munmap(memory, bytes);
    ASSERT_FALSE(observed.parts.empty());
    EXPECT_EQ(observed.parts[0].rows, near_observed.parts[0].rows);
}

// ---- Memory -------------------------------------------------------------------------------------------------------

using CudaStackMemory = OnStandIn;

TEST_F(CudaStackMemory, IsFreed) {
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

TEST_F(CudaStackMemory, SteadyStateAllocatesNothingAndCanBeCaptured) {
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

TEST_F(CudaStackMemory, FailedCallsWriteAndAppendNothing) {
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
        std::unique_ptr<Context> context;
        std::vector<std::uint8_t> before;
        const long failures = failures_for_memory(
            "halyard_stack_forward",
            [&] {
                context = std::make_unique<Context>();
                logits->clear();
                before = logits->snapshot();
                return run(context->get(), ids);
            },
            [&](bool failed) {
                EXPECT_TRUE(!failed || logits->snapshot() == before);
                for (const std::int64_t layer : {0, 1}) {
                    for (const std::int64_t sequence : {0, 1}) {
                        EXPECT_EQ(cache.length(layer, sequence), failed ? 2 : 5);
                    }
                }
            });
        EXPECT_GE(failures, 3);
    }
}

TEST_F(CudaStackMemory, CreationFailsCleanly) {
    for (const bool sources_on_device : {false, true}) {
        StackForm form = on_device(preset_stack("gemma"), sources_on_device);
        form.block.matrices = Dtype::bf16;
        form.tied = false;
        form.positions = 20;
        const Stack stack(form);
        const halyard_block *const layers[] = {stack.blocks[0]->get()};
        halyard_stack_weights weights{};
        weights.embed_tokens = &stack.embed_tokens->view;
        weights.embed_positions = &stack.embed_positions->view;
        weights.lm_head = &stack.lm_head->view;
        const Context context;
        const long before = allocated();
        halyard_stack *made = nullptr;
        const long failures = failures_for_memory(
            "halyard_stack_create",
            [&] { return halyard_stack_create(context.get(), &stack.values.config, &weights, layers, 1, &made); },
            [&](bool failed) {
                EXPECT_EQ(made == nullptr, failed);
                halyard_stack_destroy(std::exchange(made, nullptr));
                halyard_context_release_scratch(context.get());
                EXPECT_EQ(allocated(), before);
            });
        EXPECT_GE(failures, sources_on_device ? 4 : 6);
    }
}

// ---- Refusals -----------------------------------------------------------------------------------------------------

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
    refuses("input_ids is on device type 2, but must be on the CPU (kDLCPU)", there, cache_there, cuda_device,
            cuda_device);
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
