// Blocks on tensors of a CUDA device, by the stand-ins for driver and cuBLASLt or the originals: against the float64
// references of the processors' tests, with what lies between the products rounded to the type that it has on a device.
#include <memory>
#include <utility>

#include "blocks_on_device.h"
#include "support/device_hooks.h"

namespace halyard::tests {
namespace {

void expect_right(const Block &block, BlockCall &call) {
    const Context context;
    const Matrix expected = call.expected();
    ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error() << "; " << block.form.describe();
    ASSERT_TRUE(as_expected(call.y, expected)) << "x " << name_of(call.x.dtype()) << "; " << block.form.describe();
    ASSERT_TRUE(call.surroundings_intact()) << block.form.describe();
}

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
        for (const halyard_norm_placement placement : norm_placements) {
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

// The rows are small, so that what norms make of them is more than what 16 bits round away.
TEST(CudaBlock, DoesNotRoundNormsInF32) {
    for (const halyard_norm_placement placement : norm_placements) {
        for (const Dtype type : {Dtype::f16, Dtype::bf16}) {
            BlockForm form = mixed_block(4, HALYARD_NORM_RMS, placement, HALYARD_SILU, true);
            form.config.norm_flags = HALYARD_RMS_UNIT_OFFSET;
            form.config.rms_norm_eps = 1e-9f;
            form.matrices = type;
            form.vectors = Dtype::f32;
            form.fine_norms = true;
            const Block block(on_device(form));
            BlockCall call(block, type, {5});
            call.x.fill([](std::int64_t row, std::int64_t i) { return 0x1p-8 * bell(3, row, i); });
            ASSERT_NO_FATAL_FAILURE(expect_right(block, call));
        }
    }
}

TEST(CudaBlock, WorksInPlace) {
    int number = 0;
    for (const halyard_norm_placement placement : norm_placements) {
        for (const Dtype type : {Dtype::f32, Dtype::f16}) {
            BlockForm form = mixed_block(++number, HALYARD_NORM_RMS, placement, HALYARD_SILU, true);
            form.matrices = type;
            const Block block(on_device(form));
            BlockCall call(block, type, {2, 6}, 3, 3);
            ASSERT_EQ(call.run(nullptr), HALYARD_OK) << halyard_last_error();
            ASSERT_EQ(
                finished(halyard_block_forward(nullptr, block.get(), &call.x.view, nullptr, 0, nullptr, &call.x.view)),
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
        const Matrix all = alone.expected();
        expected.insert(expected.end(), all.begin() + lengths[i], all.end());
        ASSERT_NO_FATAL_FAILURE(alone.begin_sequence(context.get(), cache, 1, order[i], lengths[i], together, i));
    }
    ASSERT_EQ(together.run(context.get(), cache, 1, order), HALYARD_OK) << halyard_last_error();
    EXPECT_TRUE(as_expected(together.y, expected));
    for (const std::int64_t sequence : {0, 1, 2, 3}) {
        EXPECT_EQ(cache.length(1, sequence), sequence == 3 ? 10 : sequence == 1 ? 6 : 0);
        EXPECT_EQ(cache.length(0, sequence) + cache.length(2, sequence), 0);
    }
}

// ---- Memory -------------------------------------------------------------------------------------------------------

using CudaBlockMemory = OnStandIn;

BlockForm typical_block(Dtype type) {
    BlockForm form = on_device(preset_block("gemma"));
    form.matrices = type;
    form.head_norms = true;
    return form;
}

TEST_F(CudaBlockMemory, SteadyStateAllocatesNothingAndCanBeCaptured) {
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

TEST_F(CudaBlockMemory, FailedCallsWriteAndAppendNothing) {
    for (const Dtype x : {Dtype::f32, Dtype::bf16}) {
        const Block block(typical_block(Dtype::bf16));
        BlockCall call(block, x, {2, 3});
        const BlockCache cache(block.form, Dtype::f32, 2, 2, 20);
        ASSERT_EQ(call.run(nullptr, cache, 1), HALYARD_OK) << halyard_last_error();
        std::unique_ptr<Context> context;
        std::vector<std::uint8_t> before;
        const long failures = failures_for_memory(
            "halyard_block_forward",
            [&] {
                context = std::make_unique<Context>();  // without scratch so far
                call.y.clear();
                before = call.y.snapshot();
                return call.run(context->get(), cache, 1);
            },
            [&](bool failed) {
                EXPECT_TRUE(!failed || call.y.snapshot() == before);
                EXPECT_EQ(cache.length(1, 0), failed ? 3 : 6);
                EXPECT_EQ(cache.length(1, 1), failed ? 3 : 6);
                EXPECT_EQ(cache.length(0, 0), 0);
            });
        EXPECT_GE(failures, 2);
    }
}

TEST_F(CudaBlockMemory, CreationFailsCleanly) {
    for (const bool sources_on_device : {false, true}) {
        BlockForm form = typical_block(Dtype::bf16);
        form.sources_on_device = sources_on_device;
        const BlockTensors tensors(form);
        const Context context;
        const long before = allocated();
        halyard_block *block = nullptr;
        const long failures = failures_for_memory(
            "halyard_block_create",
            [&] { return halyard_block_create(context.get(), &form.config, &tensors.weights, &block); },
            [&](bool failed) {
                EXPECT_EQ(block == nullptr, failed);
                halyard_block_destroy(std::exchange(block, nullptr));
                halyard_context_release_scratch(context.get());
                EXPECT_EQ(allocated(), before);
            });
        EXPECT_GE(failures, 8);  // angles, vectors in two types, four matrices, and scratch memory
    }
}

// ---- Refusals -----------------------------------------------------------------------------------------------------

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
    refuses(HALYARD_NO_DEVICE, "there is no CUDA device 99", here,
            [](halyard_block_weights &w) { w.device = no_such_device; });
}

}  // namespace
}  // namespace halyard::tests
