// Linear layers and feed-forward networks on tensors of a CUDA device, against the float64 references:
// by the stand-ins for driver and cuBLASLt, or the originals, and, where HALYARD_CUBLASLT is "off", by the library's
// own kernels.
#include <dlfcn.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "stand_ins.h"
#include "support/device_hooks.h"
#include "support/ffn.h"

namespace halyard::tests {
namespace {

/** Lets a function of a stand-in fail as long as this lives. */
class Failing {
public:
    explicit Failing(const char *function) { setenv("STAND_IN_FAIL", function, 1); }
    ~Failing() { unsetenv("STAND_IN_FAIL"); }
};

// ---- linear layers ----

WeightForm on_device(WeightForm form) {
    form.device = cuda_device;
    return form;
}

void expect_right(LinearCall &call, const halyard_context *context) {
    call.move_to(cuda_device);
    const Matrix expected = call.expected();
    ASSERT_EQ(call.run(context), HALYARD_OK) << halyard_last_error() << "; " << call.describe();
    ASSERT_TRUE(call.check(expected));
}

class LinearLayers : public testing::TestWithParam<Dtype> {
protected:
    const Dtype type = GetParam();
    const Context context;
};

TEST_P(LinearLayers, AreRightForEverySizeAndLayout) {
    for (const halyard_weight_layout layout : {HALYARD_WEIGHT_OUT_IN, HALYARD_WEIGHT_IN_OUT}) {
        for (const bool gated : {false, true}) {
            for (const auto &[in, out] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {33, 7}, {24, 40}, {130, 65}}) {
                WeightForm form = on_device(weight_form(type, in, out, gated));
                form.layout = layout;
                const Weights weights(form);
                for (const Shape &leading : {Shape{1}, Shape{5}, Shape{2, 3}, Shape{}}) {
                    for (const std::int64_t gap : {0, 5}) {
                        if (gap > 0 && leading.empty()) {
                            continue;
                        }
                        LinearCall call(weights, call_form(type, type, leading, gap, gap + 2));
                        call.activate(gated ? HALYARD_SILU : HALYARD_IDENTITY);
                        ASSERT_NO_FATAL_FAILURE(expect_right(call, context.get()));
                    }
                }
            }
        }
    }
}

TEST_P(LinearLayers, DoWhatTheirOptionsSay) {
    for (const bool gated : {false, true}) {
        const Weights weights(on_device(weight_form(type, 48, 24, gated)));
        for (unsigned options = 0; options < 64; options++) {
            LinearCall call(weights, call_form(type, type, {3}, 0, 0), options + 1);
            call.activate(options % 2 ? gated ? HALYARD_GELU_TANH : HALYARD_GELU : HALYARD_IDENTITY);
            if (options & 2) {
                call.add_row_scale();
            }
            if (options & 4) {
                call.add_row_mean();
            }
            if (options & 8) {
                call.add_bias(options & 2 ? Dtype::f32 : type);
            }
            if (gated && (options & 16)) {
                call.add_bias_up(Dtype::bf16);
            }
            if (options & 32) {
                if (options & 16) {
                    call.add_residual_in_place();
                } else {
                    call.add_residual();
                }
            }
            ASSERT_NO_FATAL_FAILURE(expect_right(call, context.get())) << "options " << options;
        }
    }
}

TEST_P(LinearLayers, HaveEveryActivation) {
    for (const bool gated : {false, true}) {
        const Weights weights(on_device(weight_form(type, 32, 16, gated)));
        for (const LayerActivation &activation : layer_activations()) {
            for (const bool scaled : {false, true}) {
                LinearCall call(weights, call_form(type, type, {4}, 0, 0), 7);
                call.activate(activation.value, 1.25f);
                if (scaled) {
                    call.add_row_scale();
                }
                ASSERT_NO_FATAL_FAILURE(expect_right(call, context.get()));
            }
        }
    }
}

TEST_P(LinearLayers, MakeNanOfNanByEveryActivation) {
    for (const bool gated : {false, true}) {
        const Weights weights(on_device(weight_form(type, 32, 16, gated)));
        for (const LayerActivation &activation : layer_activations()) {
            // Swish of a negative beta changes signs by their bits.
            for (const float beta : {1.25f, -1.25f}) {
                LinearCall call(weights, call_form(type, type, {4}, 0, 0), 7);
                call.activate(activation.value, activation.value == HALYARD_SWISH ? beta : 0);
                call.add_row_scale();
                call.x.fill([](std::int64_t, std::int64_t) { return NAN; });
                call.move_to(cuda_device);
                ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
                for (std::int64_t row = 0; row < 4; row++) {
                    for (const double y : call.y.row_values(row)) {
                        ASSERT_TRUE(std::isnan(y)) << activation.name << " of NaN is " << y << "; " << call.describe();
                    }
                }
            }
        }
    }
}

TEST_P(LinearLayers, TakeWeightsWithANormFolded) {
    for (const halyard_weight_layout layout : {HALYARD_WEIGHT_OUT_IN, HALYARD_WEIGHT_IN_OUT}) {
        for (const bool gated : {false, true}) {
            for (const bool from_host : {false, true}) {
                WeightForm form = on_device(weight_form(type, 37, 11, gated, 3));
                form.layout = layout;
                form.norm_weight = form.norm_bias = true;
                form.unit_offset = from_host;
                form.sources_on_device = !from_host;
                form.coarse = true;
                const Weights weights(form);
                LinearCall call(weights, call_form(type, type, {2, 3}, 3, 1), 9);
                call.add_row_scale();
                call.add_row_mean();
                call.add_bias(Dtype::f32);
                call.activate(HALYARD_SILU);
                ASSERT_NO_FATAL_FAILURE(expect_right(call, context.get()));
            }
        }
    }
}

TEST_P(LinearLayers, TakeWeightsWithANormInF32Folded) {
    for (int number = 0; number < 12; number++) {
        WeightForm form = on_device(weight_form(type, 37, 11, number % 4 < 2, 3));
        form.layout = number % 2 == 0 ? HALYARD_WEIGHT_OUT_IN : HALYARD_WEIGHT_IN_OUT;
        form.norm_weight = form.f32_norm_weight = number % 3 != 1;
        form.norm_bias = number % 3 != 0;
        form.f32_norm_bias = form.norm_bias && number < 9;
        form.unit_offset = form.norm_weight && number < 6;
        form.sources_on_device = number % 5 < 3;
        const Weights weights(form);
        // In f32, y has no rounding that would hide one of the norm.
        LinearCall call(weights, call_form(type, Dtype::f32, {2, 3}, 3, 1), 9);
        call.add_row_scale();
        call.add_row_mean();
        ASSERT_NO_FATAL_FAILURE(expect_right(call, context.get())) << "norm " << number;
    }
}

INSTANTIATE_TEST_SUITE_P(Cuda, LinearLayers, testing::ValuesIn(all_dtypes),
                         [](const auto &info) { return std::string(name_of(info.param)); });

TEST(LinearLayersOfMixedTypes, AreRight) {
    const Context context;
    for (const Types &types : all_types()) {
        for (const bool gated : {false, true}) {
            const Weights weights(on_device(weight_form(types.w, 40, 24, gated)));
            for (const bool more : {false, true}) {
                LinearCall call(weights, call_form(types.x, types.y, {3}, 8, 0), 5);
                if (gated) {
                    call.activate(HALYARD_SILU);
                }
                if (more) {
                    call.add_bias(Dtype::f16);
                    call.add_residual();
                }
                ASSERT_NO_FATAL_FAILURE(expect_right(call, context.get()));
            }
        }
    }
}

// ---- feed-forward networks ----

void expect_right(Ffn &ffn, const halyard_context *context) {
    const Matrix expected = ffn.expected();
    ASSERT_EQ(ffn.run(context), HALYARD_OK) << halyard_last_error() << "; " << ffn.describe();
    ASSERT_TRUE(as_expected(ffn.y, expected)) << ffn.describe();
    ASSERT_TRUE(ffn.surroundings_intact());
}

FfnForm ffn_form(Dtype type) {
    FfnForm form;
    form.x = form.y = form.up = form.down = form.bias_type = type;
    form.device = cuda_device;
    return form;
}

class Ffns : public testing::TestWithParam<Dtype> {
protected:
    const Dtype type = GetParam();
    const Context context;
};

TEST_P(Ffns, AreRight) {
    for (const bool gated : {false, true}) {
        for (const halyard_norm norm : {HALYARD_NORM_NONE, HALYARD_NORM_RMS, HALYARD_NORM_LAYER}) {
            for (const bool deferred : {false, true}) {
                if (deferred && norm == HALYARD_NORM_NONE) {
                    continue;
                }
                for (const bool biases : {false, true}) {
                    FfnForm form = ffn_form(type);
                    form.gated = gated;
                    form.norm = norm;
                    form.deferred = deferred;
                    form.activation = gated ? HALYARD_SILU : HALYARD_GELU_TANH;
                    form.bias = form.bias_down = biases;
                    form.bias_up = biases && gated;
                    form.residual = true;
                    form.f32_norm_weight = biases;
                    form.f32_norm_bias = gated;
                    form.seed = 3;
                    Ffn ffn(form);
                    ASSERT_NO_FATAL_FAILURE(expect_right(ffn, context.get()));
                }
            }
        }
    }
}

TEST_P(Ffns, AreRightForEveryShape) {
    for (const auto &[d_model, d_ff] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {33, 65}, {16, 8}}) {
        for (const Shape &leading : {Shape{1}, Shape{}, Shape{3, 2}}) {
            for (const std::int64_t gap : {0, 3}) {
                if (gap > 0 && leading.empty()) {
                    continue;
                }
                FfnForm form = ffn_form(type);
                form.gated = true;
                form.norm = HALYARD_NORM_RMS;
                form.activation = HALYARD_SILU;
                form.residual = gap == 0;
                form.d_model = d_model;
                form.d_ff = d_ff;
                form.leading = leading;
                form.x_gap = gap;
                form.y_gap = 2 * gap;
                Ffn ffn(form);
                ASSERT_NO_FATAL_FAILURE(expect_right(ffn, context.get()));
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Cuda, Ffns, testing::ValuesIn(all_dtypes),
                         [](const auto &info) { return std::string(name_of(info.param)); });

TEST(FfnsOfMixedTypes, AreRight) {
    const Context context;
    for (const Types &types : all_types()) {
        for (const bool residual : {false, true}) {
            FfnForm form = ffn_form(types.w);
            form.x = types.x;
            form.y = residual ? types.x : types.y;
            form.norm = HALYARD_NORM_LAYER;
            form.activation = HALYARD_GELU;
            form.bias = form.bias_down = true;
            form.bias_type = Dtype::f32;
            form.residual = residual;
            Ffn ffn(form);
            ASSERT_NO_FATAL_FAILURE(expect_right(ffn, context.get()));
        }
    }
}

// ---- what goes wrong, and what must not happen ----

using Layers = OnStandIn;

class LayersByBlasLt : public OnStandIn {
protected:
    void SetUp() override {
        OnStandIn::SetUp();
        if (!has_blaslt()) {
            GTEST_SKIP() << "with cuBLASLt alone";
        }
    }
};

TEST_F(Layers, UseCublasLtWhereItIsThere) {
    const Context context;
    const Weights weights(on_device(weight_form(Dtype::bf16, 64, 32)));
    LinearCall call(weights, call_form(Dtype::bf16, Dtype::bf16, {8}));
    call.move_to(cuda_device);
    ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
    if (!has_blaslt()) {
        EXPECT_EQ(dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_NOLOAD), nullptr);
        return;
    }
    const long products = products_by_blaslt(), questions = count("libcublasLt.so.13", "stand_in_heuristics");
    ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(products_by_blaslt(), products + 1);
    EXPECT_EQ(count("libcublasLt.so.13", "stand_in_heuristics"), questions) << "the algorithm was asked for again";
    // What it has no algorithm for, the library computes.
    LinearCall odd(weights, call_form(Dtype::bf16, Dtype::bf16, {8}, 1));
    ASSERT_NO_FATAL_FAILURE(expect_right(odd, context.get()));
    EXPECT_EQ(products_by_blaslt(), products + 1);
    const Failing failing("cublasLtMatmulAlgoGetHeuristic");
    LinearCall other(weights, call_form(Dtype::bf16, Dtype::bf16, {9}));
    ASSERT_NO_FATAL_FAILURE(expect_right(other, context.get()));
    EXPECT_EQ(products_by_blaslt(), products + 1);
}

TEST_F(LayersByBlasLt, SayWhatItRefuses) {
    const Context context;
    const Weights weights(on_device(weight_form(Dtype::bf16, 64, 32)));
    LinearCall call(weights, call_form(Dtype::bf16, Dtype::bf16, {8}));
    call.move_to(cuda_device);
    const Failing failing("cublasLtMatmul");
    expect_message(call.run(context.get()), HALYARD_DEVICE_ERROR,
                   "halyard_linear: a product by cuBLASLt failed: the function failed to launch on the GPU");
}

// More shapes than there are places for: objects of old ones are destroyed.
TEST_F(LayersByBlasLt, RememberABoundedNumberOfShapes) {
    const Context context;
    const Weights weights(on_device(weight_form(Dtype::f32, 1, 1)));
    for (std::int64_t rows = 1; rows <= 6000; rows++) {
        LinearCall call(weights, call_form(Dtype::f32, Dtype::f32, {rows}));
        call.move_to(cuda_device);
        ASSERT_EQ(call.run(context.get()), HALYARD_OK) << halyard_last_error();
    }
    EXPECT_LE(count("libcublasLt.so.13", "stand_in_objects"), 4096 * 5);
}

TEST_F(Layers, AllocateNothingInSteadyState) {
    const Context context;
    FfnForm form = ffn_form(Dtype::bf16);
    form.gated = form.residual = true;
    form.norm = HALYARD_NORM_RMS;
    form.activation = HALYARD_SILU;
    form.leading = {6};
    Ffn large(form);
    form.leading = {2};
    Ffn small(form);
    ASSERT_EQ(large.run(context.get()), HALYARD_OK) << halyard_last_error();
    const long before = allocations();
    ASSERT_EQ(large.run(context.get()), HALYARD_OK) << halyard_last_error();
    ASSERT_EQ(small.run(context.get()), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(allocations(), before);
    halyard_context_release_scratch(context.get());
    ASSERT_EQ(large.run(context.get()), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(allocations(), before + 1);
}

TEST_F(Layers, CanBeCapturedWhenTheirMemoryIsThere) {
    const Context context;
    FfnForm form = ffn_form(Dtype::f16);
    form.activation = HALYARD_RELU;
    Ffn ffn(form);
    {
        const Capture capture;
        expect_message(ffn.run(context.get()), HALYARD_DEVICE_ERROR, "the stream is being captured");
    }
    ASSERT_EQ(ffn.run(context.get()), HALYARD_OK) << halyard_last_error();
    {
        const Capture capture;
        EXPECT_EQ(ffn.run(context.get()), HALYARD_OK) << halyard_last_error();
    }
    // The graph keeps its memory: a larger call takes other memory.
    form.leading = {3000};
    form.d_model = 1;
    form.d_ff = 1024;
    Ffn larger(form);
    const long before = allocations();
    ASSERT_EQ(larger.run(context.get()), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(allocations(), before + 1);
    ASSERT_EQ(ffn.run(context.get()), HALYARD_OK) << halyard_last_error();
}

TEST_F(Layers, SayThatThereIsNoMemory) {
    const Context context;
    const Weights weights(on_device(weight_form(Dtype::f32, 8, 8)));
    LinearCall call(weights, call_form(Dtype::f32, Dtype::f32, {2}));
    call.activate(HALYARD_RELU);
    call.move_to(cuda_device);
    {
        const Failing failing("cuMemAlloc_v2");
        expect_message(call.run(context.get()), HALYARD_OUT_OF_MEMORY,
                       "halyard_linear: allocating scratch memory on the device failed: out of memory");
        Tensor matrix(Dtype::f32, compact_form({4, 4}));
        matrix.view.device = cuda_device;
        halyard_weights *packed = nullptr;
        expect_message(halyard_weights_pack(context.get(), &matrix.view, nullptr, nullptr, 0, &packed),
                       HALYARD_OUT_OF_MEMORY,
                       "allocating memory for packed weights on the device failed: out of memory");
        EXPECT_EQ(packed, nullptr);
    }
    ASSERT_NO_FATAL_FAILURE(expect_right(call, context.get()));
}

TEST(LayerArguments, AreWhereTheWeightsAre) {
    const Context context;
    const Weights here(weight_form(Dtype::f32, 8, 8)), there(on_device(weight_form(Dtype::f32, 8, 8)));
    LinearCall on_cpu(there, f32_rows(2)), on_gpu(here, f32_rows(2));
    on_gpu.move_to(cuda_device);
    expect_message(on_cpu.run(context.get()), HALYARD_UNSUPPORTED,
                   "weights is packed for CUDA device 0, but x is on the CPU");
    expect_message(on_gpu.run(context.get()), HALYARD_UNSUPPORTED,
                   "weights is packed for the CPU, but x is on CUDA device 0");
    LinearCall mixed(there, f32_rows(2));
    mixed.add_bias(Dtype::f32);
    mixed.move_to(cuda_device);
    mixed.bias->view.device = {kDLCPU, 0};
    expect_message(mixed.run(context.get()), HALYARD_UNSUPPORTED, "bias is on the CPU, but x is on CUDA device 0");
    LinearCall other(there, f32_rows(2));
    other.move_to({kDLCUDA, 1});
    expect_message(other.run(context.get()), HALYARD_UNSUPPORTED, "but x is on CUDA device 1");
}

TEST(Weights, OnADeviceSayWhatTheyAre) {
    Tensor matrix(Dtype::bf16, compact_form({6, 10})), norm(Dtype::bf16, compact_form({10}));
    matrix.fill([](std::int64_t row, std::int64_t i) { return bell(1, row, i); });
    norm.fill([](std::int64_t row, std::int64_t i) { return bell(2, row, i); });
    matrix.view.device = cuda_device;
    halyard_pack_options options{};
    std::int64_t bytes = 0;
    ASSERT_EQ(halyard_weights_size(&matrix.view, &options, &bytes), HALYARD_OK);
    halyard_weights *weights = nullptr;
    ASSERT_EQ(halyard_weights_pack(nullptr, &matrix.view, &options, nullptr, 0, &weights), HALYARD_OK)
        << halyard_last_error();
    halyard_weights_info info;
    ASSERT_EQ(halyard_weights_get_info(weights, &info), HALYARD_OK);
    EXPECT_EQ(info.in_features, 10);
    EXPECT_EQ(info.out_features, 6);
    EXPECT_EQ(info.bytes, bytes);
    EXPECT_NE(halyard_weights_data(weights), nullptr);
    expect_message(halyard_weights_save(weights, "never.written"), HALYARD_UNSUPPORTED, "weights is on CUDA device 0");
    halyard_weights_destroy(weights);

    weights = nullptr;
    const auto refused = [&](halyard_status status, const std::string &part) {
        expect_message(halyard_weights_pack(nullptr, &matrix.view, &options, nullptr, 0, &weights), status, part);
        EXPECT_EQ(weights, nullptr);
    };
    options.norm_weight = &norm.view;
    refused(HALYARD_UNSUPPORTED, "norm_weight is on the CPU, but weight is on CUDA device 0");
    options.norm_weight = nullptr;
    options.device = {kDLCPU, 0};
    refused(HALYARD_UNSUPPORTED, "weight is on CUDA device 0, from which it cannot be packed for another device");
    matrix.view.device = {kDLCPU, 0};
    options.device = no_such_device;
    refused(HALYARD_NO_DEVICE, "there is no CUDA device 99");
    options.device = {kDLVulkan, 0};
    refused(HALYARD_UNSUPPORTED, "device has type 7");
    options.device = cuda_device;
    char memory[1];
    expect_message(halyard_weights_pack(nullptr, &matrix.view, &options,
                                        memory + (reinterpret_cast<std::uintptr_t>(memory) % 256 == 0), 1, &weights),
                   HALYARD_INVALID_ARGUMENT, "memory is misaligned");
}

}  // namespace
}  // namespace halyard::tests
