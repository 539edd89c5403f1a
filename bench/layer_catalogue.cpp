// Linear layers and feed-forward networks as rows of the benchmark.
#include "layer.h"

namespace halyard::bench {
namespace {

halyard_status call_linear(Work &work, Operands &set) {
    const halyard_linear_options options = linear_options(work, set);
    return halyard_linear(work.context.get(), &set.inputs[0].view, set.weights[0].get(), &options,
                          &set.outputs[0].view);
}

halyard_status call_ffn(Work &work, Operands &set) {
    const halyard_ffn_options options = ffn_options(work);
    return halyard_ffn(work.context.get(), &set.inputs[0].view, set.weights[0].get(), set.weights[1].get(), &options,
                       &set.outputs[0].view);
}

Kernel layer_kernel(const char *name, const LayerForm &form) {
    Kernel kernel;
    kernel.name = name;
    kernel.operation = form.is_ffn ? "ffn" : "linear";
    kernel.group = form.is_ffn ? "feed-forward" : "linear";
    kernel.stream = stream_read;
    kernel.layer = form;
    kernel.inputs = form.has_residual && !form.is_ffn ? 2 : 1;
    kernel.has_weight = form.norm != HALYARD_NORM_NONE;
    kernel.has_bias = form.norm == HALYARD_NORM_LAYER;
    kernel.call = form.is_ffn ? call_ffn : call_linear;
    return kernel;
}

std::vector<Kernel> make_catalogue() {
    LayerForm linear, gpt2_up, gpt2_down;
    gpt2_up.has_bias = gpt2_down.has_bias = true;
    gpt2_up.activation = HALYARD_GELU_TANH;
    gpt2_down.has_residual = true;

    LayerForm swiglu, geglu_tanh;
    swiglu.gated = geglu_tanh.gated = true;
    swiglu.activation = HALYARD_SILU;
    geglu_tanh.activation = HALYARD_GELU_TANH;

    LayerForm swiglu_ffn = swiglu, geglu_tanh_ffn = geglu_tanh, gpt2_ffn = gpt2_up;
    swiglu_ffn.is_ffn = geglu_tanh_ffn.is_ffn = gpt2_ffn.is_ffn = true;

    LayerForm swiglu_block = swiglu_ffn, gpt2_block = gpt2_ffn;
    swiglu_block.norm = HALYARD_NORM_RMS;
    gpt2_block.norm = HALYARD_NORM_LAYER;
    swiglu_block.has_residual = gpt2_block.has_residual = true;
    LayerForm swiglu_deferred = swiglu_block, gpt2_deferred = gpt2_block;
    swiglu_deferred.deferred_norm = gpt2_deferred.deferred_norm = true;

    return {
        layer_kernel("linear", linear),
        layer_kernel("linear_bias_gelu_tanh", gpt2_up),
        layer_kernel("linear_bias_residual", gpt2_down),
        layer_kernel("linear_swiglu", swiglu),
        layer_kernel("linear_geglu_tanh", geglu_tanh),
        layer_kernel("ffn_swiglu", swiglu_ffn),
        layer_kernel("ffn_geglu_tanh", geglu_tanh_ffn),
        layer_kernel("ffn_gelu_tanh", gpt2_ffn),
        layer_kernel("rms_norm_ffn_swiglu_residual", swiglu_block),
        layer_kernel("rms_norm_ffn_swiglu_residual.deferred", swiglu_deferred),
        layer_kernel("layer_norm_ffn_gelu_tanh_residual", gpt2_block),
        layer_kernel("layer_norm_ffn_gelu_tanh_residual.deferred", gpt2_deferred),
    };
}

}  // namespace

const std::vector<Kernel> &layer_catalogue() {
    static const std::vector<Kernel> kernels = make_catalogue();
    return kernels;
}

}  // namespace halyard::bench
