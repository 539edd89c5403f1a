// Calls in CUDA graphs: a stream is captured, the graph is launched, and the results are those of the same call outside
// of it. The stand-in for the driver does at once what it captures, and a launch of the graph is nothing there.
#include <utility>

#include "bench/cuda/cuda.h"
#include "blocks_on_device.h"
#include "support/attention.h"
#include "support/device_hooks.h"
#include "support/ffn.h"

namespace halyard::tests {
namespace {

class CudaGraphs : public testing::TestWithParam<Dtype> {
protected:
    CudaGraphs() {
        EXPECT_EQ(halyard_context_set_cuda_stream(context.get(), gpu.stream), HALYARD_OK) << halyard_last_error();
    }

    /** Calls outside of a graph, and then in one that is launched. `restore` comes before the second call. */
    template<typename Call, typename Restore>
    void expect_same(Tensor &y, const Call &call, const Restore &restore) {
        y.clear();
        ASSERT_EQ(finished(call()), HALYARD_OK) << halyard_last_error();
        const std::vector<std::uint32_t> expected = y.all_bits();
        y.clear();
        restore();
        halyard_status captured = HALYARD_OK;
        // Nothing may wait for the device meanwhile.
        const auto called = std::exchange(device_hooks.called, nullptr);
        bench::cuda::Gpu::Graph graph(gpu, [&] { captured = call(); });
        device_hooks.called = called;
        ASSERT_EQ(captured, HALYARD_OK) << halyard_last_error();
        graph.launch();
        gpu.wait();
        EXPECT_TRUE(same_bits(y.dtype(), expected, y.all_bits()));
        EXPECT_TRUE(y.surroundings_intact());
    }

    const Dtype type = GetParam();
    bench::cuda::Gpu gpu{0};
    const Context context;
};

TEST_P(CudaGraphs, OfOperations) {
    Tensor x(type, compact_form({5, 256})), y(type, compact_form({5, 256}));
    x.fill([](std::int64_t row, std::int64_t i) { return bell(1, row, i); });
    to_device(x, y);
    expect_same(
        y, [&] { return halyard_softmax(context.get(), &x.view, 0.5f, &y.view); }, [] {});
    expect_same(
        y, [&] { return halyard_gelu(context.get(), &x.view, &y.view); }, [] {});
}

TEST_P(CudaGraphs, OfNetworks) {
    FfnForm form;
    form.x = form.y = form.up = form.down = form.bias_type = type;
    form.device = cuda_device;
    form.gated = form.residual = true;
    form.norm = HALYARD_NORM_RMS;
    form.activation = HALYARD_SILU;
    form.d_model = 64;
    form.d_ff = 128;
    Ffn ffn(form);
    expect_same(
        ffn.y, [&] { return ffn.run(context.get()); }, [] {});
}

// One token after others: what a graph of a step of decoding holds.
TEST_P(CudaGraphs, OfAttention) {
    AttentionForm form = square(150, 4, 2, 64);
    form.q = form.k = form.v = form.y = type;
    form.rotary_dim = 64;
    AttentionCase call(form);
    to_device(call.q, call.k, call.v, call.y);
    const Cache cache = make_cache(type, 1, 2, 64, 150, 1, cuda_device);
    ASSERT_EQ(call.run_cached(context.get(), cache.get(), 0, 149, call.y), HALYARD_OK) << halyard_last_error();
    expect_same(
        call.y, [&] { return call.run_cached(context.get(), cache.get(), 149, 1, call.y); },
        [&] { ASSERT_EQ(halyard_kv_cache_truncate(cache.get(), 0, 149), HALYARD_OK); });
}

TEST_P(CudaGraphs, OfStacks) {
    StackForm form = on_device(preset_stack("gemma"));
    form.block.matrices = form.tables = type;
    const Stack stack(form);
    const BlockCache cache(form.block, type, 2, 1, 20);
    const IdTensor prompt(some_ids(9, form.vocab, 1)), next({5});
    const auto logits = logits_tensor(stack, type, {});
    logits->view.device = cuda_device;
    const auto run = [&](const IdTensor &ids) {
        return halyard_stack_forward(context.get(), stack.get(), &ids.view, cache.get(), nullptr, nullptr,
                                     &logits->view);
    };
    ASSERT_EQ(finished(run(prompt)), HALYARD_OK) << halyard_last_error();
    expect_same(
        *logits, [&] { return run(next); },
        [&] { ASSERT_EQ(halyard_kv_cache_truncate(cache.get(), 0, 9), HALYARD_OK); });
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaGraphs, testing::ValuesIn(all_dtypes),
                         [](const auto &info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace halyard::tests
