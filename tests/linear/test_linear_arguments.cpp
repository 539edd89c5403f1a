// Every bad argument of linear layers and feed-forward networks: the call fails with the right kind of status, the
// message names the function and the argument, and nothing is written.
#include "support/ffn.h"

#include <cmath>
#include <cstring>

namespace halyard::tests {
namespace {

// ---- Linear layers
// ----------------------------------------------------------------------------------------------------

/** A call to be spoiled: views may be changed, and their shapes; there is room for other strides. */
struct Spoiled {
    LinearCall &call;
    DLTensor *x = &call.x.view, *y = &call.y.view;
    const halyard_weights *weights = call.weights.get();
    std::int64_t strides[4] = {};

    DLTensor &row_scale() { return call.row_scale->view; }
    DLTensor &row_mean() { return call.row_mean->view; }
    DLTensor &bias() { return call.bias->view; }
    DLTensor &residual() { return call.residual->view; }

    void set_strides(DLTensor &view, std::int64_t pitch, std::int64_t step) {
        strides[0] = pitch;
        strides[1] = step;
        view.strides = strides;
    }
    void move_y(const void *to) {
        y->data = const_cast<void *>(to);
        y->byte_offset = 0;
    }
};

char *offset(const DLTensor &view, std::int64_t bytes) {
    return static_cast<char *>(view.data) + view.byte_offset + bytes;
}

constexpr std::int64_t bad_rows = 3, bad_in = 20, bad_out = 20;

struct LinearMistake {
    const char *what, *arguments;
    halyard_status status;
    void (*make)(Spoiled &);
};

const LinearMistake linear_mistakes[] = {
    {"null", "x", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.x = nullptr; }},
    {"null", "y", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.y = nullptr; }},
    {"null", "weights", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.weights = nullptr; }},
    {"null data", "x", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.x->data = nullptr; }},
    {"null data", "y", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.y->data = nullptr; }},
    {"null data", "row_scale", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.row_scale().data = nullptr; }},
    {"null data", "row_mean", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.row_mean().data = nullptr; }},
    {"null data", "bias", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.bias().data = nullptr; }},
    {"null data", "residual", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.residual().data = nullptr; }},
    {"null shape", "x", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.x->shape = nullptr; }},
    {"CUDA", "x", HALYARD_UNSUPPORTED, [](Spoiled &s) { s.x->device.device_type = kDLCUDA; }},
    {"CUDA", "y", HALYARD_UNSUPPORTED, [](Spoiled &s) { s.y->device.device_type = kDLCUDA; }},
    {"CUDA", "row_scale", HALYARD_UNSUPPORTED, [](Spoiled &s) { s.row_scale().device.device_type = kDLCUDA; }},
    {"CUDA", "row_mean", HALYARD_UNSUPPORTED, [](Spoiled &s) { s.row_mean().device.device_type = kDLCUDA; }},
    {"CUDA", "bias", HALYARD_UNSUPPORTED, [](Spoiled &s) { s.bias().device.device_type = kDLCUDA; }},
    {"CUDA", "residual", HALYARD_UNSUPPORTED, [](Spoiled &s) { s.residual().device.device_type = kDLCUDA; }},
    {"int32", "x", HALYARD_UNSUPPORTED, [](Spoiled &s) { s.x->dtype.code = kDLInt; }},
    {"f64", "y", HALYARD_UNSUPPORTED, [](Spoiled &s) { s.y->dtype.bits = 64; }},
    {"int32", "bias", HALYARD_UNSUPPORTED, [](Spoiled &s) { s.bias().dtype.code = kDLInt; }},
    {"f16", "row_scale", HALYARD_UNSUPPORTED, [](Spoiled &s) { s.row_scale().dtype = dlpack_type(Dtype::f16); }},
    {"bf16", "row_mean", HALYARD_UNSUPPORTED, [](Spoiled &s) { s.row_mean().dtype = dlpack_type(Dtype::bf16); }},
    {"f16 beside f32", "residual", HALYARD_UNSUPPORTED,
     [](Spoiled &s) { s.residual().dtype = dlpack_type(Dtype::f16); }},
    {"an input more", "x|weights", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.x->shape[1]++; }},
    {"an input less", "x|weights", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.x->shape[1]--; }},
    {"no inputs", "x|weights", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.x->shape[1] = 0; }},
    {"an output more", "y|weights", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.y->shape[1]++; }},
    {"no outputs", "y|weights", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.y->shape[1] = 0; }},
    {"a row less", "y", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.y->shape[0]--; }},
    {"no rows", "y", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.y->shape[0] = 0; }},
    {"negative rows", "x", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.x->shape[0] = -3; }},
    {"rank 0", "x", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.x->ndim = 0; }},
    {"rank 5", "x", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.x->ndim = 5; }},
    {"rank 1 where x has 2", "y", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) {
         s.y->shape++;
         s.y->ndim = 1;
     }},
    {"spread columns", "x", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.set_strides(*s.x, 40, 2); }},
    {"spread columns", "y", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.set_strides(*s.y, 40, 2); }},
    {"spread columns", "residual", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.set_strides(s.residual(), 40, 2); }},
    {"negative pitch", "x", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.set_strides(*s.x, -bad_in, 1); }},
    {"rows in one place", "y", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.set_strides(*s.y, 0, 1); }},
    {"rows that overlap", "y", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.set_strides(*s.y, bad_out - 1, 1); }},
    {"off by a byte", "x", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.x->byte_offset++; }},
    {"off by a byte", "bias", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.bias().byte_offset++; }},
    {"a row more", "row_scale", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.row_scale().shape[0]++; }},
    {"a row less", "row_mean", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.row_mean().shape[0]--; }},
    {"the rank of x", "row_scale", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) {
         static std::int64_t shape[] = {bad_rows, 1};
         s.row_scale().shape = shape;
         s.row_scale().strides = nullptr;
         s.row_scale().ndim = 2;
     }},
    {"an output less", "bias", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.bias().shape[0]--; }},
    {"rank 2", "bias", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) {
         static std::int64_t shape[] = {1, bad_out};
         s.bias().shape = shape;
         s.bias().ndim = 2;
     }},
    {"a column less", "residual", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.residual().shape[1]--; }},
    {"a row less", "residual", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.residual().shape[0]--; }},
    {"not gated", "bias_up", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) { s.call.options.bias_up = s.call.options.bias; }},
    {"unknown", "activation", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) { s.call.options.activation = static_cast<halyard_activation>(1000); }},
    {"NaN", "beta", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.call.activate(HALYARD_SWISH, NAN); }},
    {"infinite", "beta", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.call.activate(HALYARD_SWISH, INFINITY); }},
    {"too small", "beta", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.call.activate(HALYARD_SWISH, 1e-29f); }},
    {"too large", "beta", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.call.activate(HALYARD_SWISH, -1e29f); }},
    {"is x", "y", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.move_y(offset(*s.x, 0)); }},
    {"is x one element on", "y", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.move_y(offset(*s.x, 4)); }},
    {"ends in x", "y", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) { s.move_y(offset(*s.x, -4 * (bad_rows * bad_out - 1))); }},
    {"begins at the end of x", "y", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) { s.move_y(offset(*s.x, 4 * (bad_rows * bad_in - 1))); }},
    {"is at the bias", "y", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.move_y(offset(s.bias(), 0)); }},
    {"is at row_scale", "y", HALYARD_INVALID_ARGUMENT, [](Spoiled &s) { s.move_y(offset(s.row_scale(), 8)); }},
    {"ends at row_mean", "y", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) { s.move_y(offset(s.row_mean(), -4 * (bad_rows * bad_out - 1))); }},
    {"is the header of the weights", "y", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) { s.move_y(s.call.weights.packed()); }},
    {"is among the panels", "y", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) { s.move_y(s.call.weights.packed() + s.call.weights.packed_bytes() - 1024); }},
    {"begins at the last weight", "y", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) { s.move_y(s.call.weights.packed() + s.call.weights.packed_bytes() - 4); }},
    {"is one element into the residual", "y|residual", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) { s.move_y(offset(s.residual(), 4)); }},
    {"is the residual's memory with another pitch", "y|residual", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) {
         s.set_strides(*s.y, bad_out, 1);
         s.move_y(offset(s.residual(), 0));
     }},
    {"is a row of the residual on", "y|residual", HALYARD_INVALID_ARGUMENT,
     [](Spoiled &s) {
         s.set_strides(*s.y, s.residual().strides[0], 1);
         s.move_y(offset(s.residual(), 4 * s.residual().strides[0]));
     }},
};

TEST(LinearRefuses, WhatIsWrong) {
    const Weights weights(weight_form(Dtype::f32, bad_in, bad_out));
    for (const LinearMistake &mistake : linear_mistakes) {
        LinearCall call(weights, f32_rows(bad_rows));
        call.add_row_scale();
        call.add_row_mean();
        call.add_bias(Dtype::f32);
        call.add_residual();
        Spoiled spoiled{call};
        mistake.make(spoiled);
        const Tensor *const tensors[] = {
            &call.x, &call.y, call.row_scale.get(), call.row_mean.get(), call.bias.get(), call.residual.get()};
        std::vector<std::vector<std::uint8_t>> before;
        for (const Tensor *tensor : tensors) {
            before.push_back(tensor->snapshot());
        }
        const halyard_status status = halyard_linear(nullptr, spoiled.x, spoiled.weights, &call.options, spoiled.y);
        EXPECT_TRUE(refused(status, mistake.status, "halyard_linear", mistake.arguments))
            << mistake.arguments << ": " << mistake.what;
        for (std::size_t i = 0; i < before.size(); i++) {
            EXPECT_TRUE(tensors[i]->snapshot() == before[i])
                << "tensor " << i << " was written though " << mistake.arguments << " has: " << mistake.what;
        }
        EXPECT_TRUE(weights.intact()) << mistake.arguments << ": " << mistake.what;
    }
}

TEST(LinearRefuses, WrongOptionsOfGatedWeights) {
    const Weights weights(weight_form(Dtype::f32, bad_in, bad_out, true));
    LinearCall call(weights, f32_rows(bad_rows));
    call.add_bias_up(Dtype::f16);
    const std::vector<std::uint8_t> before = call.y.snapshot();
    const auto run = [&] { return call.run(nullptr); };
    call.bias_up->view.shape[0]--;
    EXPECT_TRUE(refused(run(), HALYARD_INVALID_ARGUMENT, "halyard_linear", "bias_up"));
    call.bias_up->view.shape[0] = 2 * bad_out;
    EXPECT_TRUE(refused(run(), HALYARD_INVALID_ARGUMENT, "halyard_linear", "bias_up"));
    call.bias_up->view.shape[0] = bad_out;
    call.bias_up->view.device.device_type = kDLCUDA;
    EXPECT_TRUE(refused(run(), HALYARD_UNSUPPORTED, "halyard_linear", "bias_up"));
    call.bias_up->view.device.device_type = kDLCPU;
    // out_features counts the columns of one of the two.
    call.y.view.shape[1] = 2 * bad_out;
    EXPECT_TRUE(refused(run(), HALYARD_INVALID_ARGUMENT, "halyard_linear", "y|weights"));
    call.y.view.shape[1] = bad_out;
    call.y.view.data = call.bias_up->view.data;
    EXPECT_TRUE(refused(run(), HALYARD_INVALID_ARGUMENT, "halyard_linear", "y"));
    EXPECT_TRUE(call.y.snapshot() == before);
}

TEST(LinearAllows, WhatIsNotWrong) {
    const Weights weights(weight_form(Dtype::f32, bad_in, bad_out));
    LinearCall call(weights, f32_rows(bad_rows));
    // beta counts for Swish alone, a mean also without a folded norm, inputs may share memory.
    call.activate(HALYARD_RELU, NAN);
    EXPECT_EQ(call.run(nullptr), HALYARD_OK) << halyard_last_error();
    call.add_row_mean();
    call.options.row_scale = call.options.row_mean;
    call.row_scale = nullptr;
    EXPECT_EQ(call.run(nullptr), HALYARD_OK) << halyard_last_error();
    call.options.row_scale = nullptr;
    call.options.residual = &call.x.view;
    EXPECT_EQ(call.run(nullptr), HALYARD_OK) << halyard_last_error();
}

// ---- Feed-forward networks
// ----------------------------------------------------------------------------------------------------

/** A call to be spoiled. */
struct SpoiledFfn {
    Ffn &ffn;
    DLTensor *x = &ffn.x.view, *y = &ffn.y.view;
    const halyard_weights *up = ffn.up.get(), *down = ffn.down.get();
    // Others to take: gated, of other widths, with a norm folded.
    const Weights &gated, &narrow, &folded;
    std::int64_t strides[4] = {};

    halyard_ffn_options &options() { return ffn.options; }
    void set_strides(DLTensor &view, std::int64_t pitch, std::int64_t step) {
        strides[0] = pitch;
        strides[1] = step;
        view.strides = strides;
    }
    void move_y(const void *to) { y->data = const_cast<void *>(to); }
    /** The folded weights, as they are to be used. */
    void defer() {
        up = folded.get();
        options().norm_weight = options().norm_bias = nullptr;
        options().deferred_norm = 1;
    }
};

struct FfnMistake {
    const char *what, *arguments;
    halyard_status status;
    void (*make)(SpoiledFfn &);
};

const FfnMistake ffn_mistakes[] = {
    {"null", "x", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.x = nullptr; }},
    {"null", "y", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.y = nullptr; }},
    {"null", "up", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.up = nullptr; }},
    {"null", "down", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.down = nullptr; }},
    {"null data", "x", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.x->data = nullptr; }},
    {"null data", "y", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.y->data = nullptr; }},
    {"null data", "norm_weight", HALYARD_INVALID_ARGUMENT,
     [](SpoiledFfn &s) { s.ffn.norm_weight->view.data = nullptr; }},
    {"null data", "bias_down", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.ffn.bias_down->view.data = nullptr; }},
    {"CUDA", "x", HALYARD_UNSUPPORTED, [](SpoiledFfn &s) { s.x->device.device_type = kDLCUDA; }},
    {"CUDA", "y", HALYARD_UNSUPPORTED, [](SpoiledFfn &s) { s.y->device.device_type = kDLCUDA; }},
    {"CUDA", "norm_bias", HALYARD_UNSUPPORTED,
     [](SpoiledFfn &s) { s.ffn.norm_bias->view.device.device_type = kDLCUDA; }},
    {"CUDA", "bias", HALYARD_UNSUPPORTED, [](SpoiledFfn &s) { s.ffn.bias->view.device.device_type = kDLCUDA; }},
    {"f64", "x", HALYARD_UNSUPPORTED, [](SpoiledFfn &s) { s.x->dtype.bits = 64; }},
    {"int32", "y", HALYARD_UNSUPPORTED, [](SpoiledFfn &s) { s.y->dtype.code = kDLInt; }},
    {"another type than x", "norm_weight", HALYARD_UNSUPPORTED,
     [](SpoiledFfn &s) { s.ffn.norm_weight->view.dtype = dlpack_type(Dtype::bf16); }},
    {"another type than x", "norm_bias", HALYARD_UNSUPPORTED,
     [](SpoiledFfn &s) { s.ffn.norm_bias->view.dtype = dlpack_type(Dtype::f16); }},
    {"with residual another type than x", "y", HALYARD_UNSUPPORTED,
     [](SpoiledFfn &s) { s.y->dtype = dlpack_type(Dtype::bf16); }},
    {"a feature more", "x|up", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.x->shape[1]++; }},
    {"no features", "x|up", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.x->shape[1] = 0; }},
    {"a feature less", "y|down", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.y->shape[1]--; }},
    {"a row more", "y", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.y->shape[0]++; }},
    {"rank 0", "x", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.x->ndim = 0; }},
    {"rank 1", "y", HALYARD_INVALID_ARGUMENT,
     [](SpoiledFfn &s) {
         s.y->shape++;
         s.y->ndim = 1;
     }},
    {"spread columns", "x", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.set_strides(*s.x, 48, 2); }},
    {"spread columns", "y", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.set_strides(*s.y, 48, 2); }},
    {"rows in one place", "y", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.set_strides(*s.y, 0, 1); }},
    {"another width than x", "up|x", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.up = s.narrow.get(); }},
    {"another width than up", "down|y", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.down = s.narrow.get(); }},
    {"up again", "down|y", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.down = s.up; }},
    {"gated", "down", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.down = s.gated.get(); }},
    {"unknown", "norm", HALYARD_INVALID_ARGUMENT,
     [](SpoiledFfn &s) { s.options().norm = static_cast<halyard_norm>(3); }},
    {"without norm", "norm_weight", HALYARD_INVALID_ARGUMENT,
     [](SpoiledFfn &s) {
         s.options().norm = HALYARD_NORM_NONE;
         s.options().norm_bias = nullptr;
     }},
    {"with RMSNorm", "norm_bias", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.options().norm = HALYARD_NORM_RMS; }},
    {"with LayerNorm", "norm_flags", HALYARD_INVALID_ARGUMENT,
     [](SpoiledFfn &s) { s.options().norm_flags = HALYARD_RMS_UNIT_OFFSET; }},
    {"unknown", "norm_flags", HALYARD_INVALID_ARGUMENT,
     [](SpoiledFfn &s) {
         s.options().norm = HALYARD_NORM_RMS;
         s.options().norm_bias = nullptr;
         s.options().norm_flags = 4;
     }},
    {"a feature less", "norm_weight", HALYARD_INVALID_ARGUMENT,
     [](SpoiledFfn &s) { s.ffn.norm_weight->view.shape[0]--; }},
    {"a feature less", "norm_bias", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.ffn.norm_bias->view.shape[0]--; }},
    {"negative", "eps", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.options().eps = -1e-5f; }},
    {"NaN", "eps", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.options().eps = NAN; }},
    {"infinite", "eps", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.options().eps = INFINITY; }},
    {"NaN, RMSNorm", "eps", HALYARD_INVALID_ARGUMENT,
     [](SpoiledFfn &s) {
         s.options().norm = HALYARD_NORM_RMS;
         s.options().norm_bias = nullptr;
         s.options().eps = NAN;
     }},
    {"without folded weights", "deferred_norm|up", HALYARD_INVALID_ARGUMENT,
     [](SpoiledFfn &s) {
         s.options().deferred_norm = 1;
         s.options().norm_weight = s.options().norm_bias = nullptr;
     }},
    {"without a norm", "deferred_norm|norm", HALYARD_INVALID_ARGUMENT,
     [](SpoiledFfn &s) {
         s.defer();
         s.options().norm = HALYARD_NORM_NONE;
     }},
    {"with deferred_norm", "norm_weight", HALYARD_INVALID_ARGUMENT,
     [](SpoiledFfn &s) {
         s.defer();
         s.options().norm_weight = &s.ffn.norm_weight->view;
     }},
    {"with deferred_norm", "norm_bias", HALYARD_INVALID_ARGUMENT,
     [](SpoiledFfn &s) {
         s.defer();
         s.options().norm_bias = &s.ffn.norm_bias->view;
     }},
    {"unknown", "activation", HALYARD_INVALID_ARGUMENT,
     [](SpoiledFfn &s) { s.options().activation = static_cast<halyard_activation>(1000); }},
    {"NaN", "beta", HALYARD_INVALID_ARGUMENT,
     [](SpoiledFfn &s) {
         s.options().activation = HALYARD_SWISH;
         s.options().beta = NAN;
     }},
    {"denormal", "beta", HALYARD_INVALID_ARGUMENT,
     [](SpoiledFfn &s) {
         s.options().activation = HALYARD_SWISH;
         s.options().beta = 1e-40f;
     }},
    {"a feature less", "bias", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.ffn.bias->view.shape[0]--; }},
    {"a feature more", "bias_down", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.ffn.bias_down->view.shape[0]++; }},
    {"not gated", "bias_up", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.options().bias_up = s.options().bias; }},
    {"is x without a residual", "y", HALYARD_INVALID_ARGUMENT,
     [](SpoiledFfn &s) {
         s.move_y(s.x->data);
         s.options().residual = 0;
     }},
    {"is x one element on", "y", HALYARD_INVALID_ARGUMENT,
     [](SpoiledFfn &s) { s.move_y(static_cast<char *>(s.x->data) + 4); }},
    {"is at norm_weight", "y", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.move_y(s.ffn.norm_weight->view.data); }},
    {"is at norm_bias", "y", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.move_y(s.ffn.norm_bias->view.data); }},
    {"is at bias", "y", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.move_y(s.ffn.bias->view.data); }},
    {"is at bias_down", "y", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.move_y(s.ffn.bias_down->view.data); }},
    {"is among the weights", "y", HALYARD_INVALID_ARGUMENT, [](SpoiledFfn &s) { s.move_y(s.ffn.up.packed() + 4096); }},
    {"begins at the last weight", "y", HALYARD_INVALID_ARGUMENT,
     [](SpoiledFfn &s) { s.move_y(s.ffn.down.packed() + s.ffn.down.packed_bytes() - 4); }},
};

TEST(FfnRefuses, WhatIsWrong) {
    FfnForm form;
    form.norm = HALYARD_NORM_LAYER;
    form.bias = form.bias_down = form.residual = true;
    form.activation = HALYARD_GELU;
    WeightForm gated_form = down_form(form), narrow_form = down_form(form), folded_form = up_form(form, true);
    gated_form.gated = true;
    narrow_form.in = form.d_model - 1;
    narrow_form.out = form.d_model;
    const Weights gated(gated_form), narrow(narrow_form), folded(folded_form);
    for (const FfnMistake &mistake : ffn_mistakes) {
        Ffn ffn(form);
        SpoiledFfn spoiled{ffn, &ffn.x.view, &ffn.y.view, ffn.up.get(), ffn.down.get(), gated, narrow, folded, {}};
        mistake.make(spoiled);
        const Tensor *const tensors[] = {
            &ffn.x, &ffn.y, ffn.norm_weight.get(), ffn.norm_bias.get(), ffn.bias.get(), ffn.bias_down.get()};
        std::vector<std::vector<std::uint8_t>> before;
        for (const Tensor *tensor : tensors) {
            before.push_back(tensor->snapshot());
        }
        const halyard_status status =
            halyard_ffn(nullptr, spoiled.x, spoiled.up, spoiled.down, &ffn.options, spoiled.y);
        EXPECT_TRUE(refused(status, mistake.status, "halyard_ffn", mistake.arguments))
            << mistake.arguments << ": " << mistake.what;
        for (std::size_t i = 0; i < before.size(); i++) {
            EXPECT_TRUE(tensors[i]->snapshot() == before[i])
                << "tensor " << i << " was written though " << mistake.arguments << " has: " << mistake.what;
        }
        EXPECT_TRUE(ffn.up.intact() && ffn.down.intact()) << mistake.arguments << ": " << mistake.what;
    }
}

TEST(FfnRefuses, AnOutputOfAnotherWidth) {
    FfnForm form;
    Ffn ffn(form);
    WeightForm wide = down_form(form);
    wide.out = form.d_model + 5;
    const Weights down(wide);
    Tensor y(Dtype::f32, compact_form({3, wide.out}));
    const std::vector<std::uint8_t> before = y.snapshot();
    for (const int residual : {0, 1}) {
        ffn.options.residual = residual;
        EXPECT_TRUE(refused(halyard_ffn(nullptr, &ffn.x.view, ffn.up.get(), down.get(), &ffn.options, &y.view),
                            HALYARD_INVALID_ARGUMENT, "halyard_ffn", "y|down"))
            << "residual " << residual;
    }
    EXPECT_TRUE(y.snapshot() == before);
}

TEST(FfnRefuses, BiasUpOfAnotherWidth) {
    FfnForm form;
    form.gated = form.bias_up = true;
    Ffn ffn(form);
    ffn.bias_up->view.shape[0]--;
    EXPECT_TRUE(refused(ffn.run(nullptr), HALYARD_INVALID_ARGUMENT, "halyard_ffn", "bias_up"));
    ffn.bias_up->view.shape[0]++;
    ffn.y.view.data = ffn.bias_up->view.data;
    EXPECT_TRUE(refused(ffn.run(nullptr), HALYARD_INVALID_ARGUMENT, "halyard_ffn", "y"));
}

}  // namespace
}  // namespace halyard::tests
