// See layers.h.
#include "layers.h"

#include "reference_linear.h"

namespace halyard::operations {
namespace {

std::vector<Layer> make_layers() {
    LayerForm linear, up_gelu, down, swiglu, geglu, q4_k;
    up_gelu.has_bias = down.has_bias = true;
    up_gelu.activation = geglu.activation = HALYARD_GELU_TANH;
    down.has_residual = true;
    swiglu.gated = geglu.gated = true;
    swiglu.activation = HALYARD_SILU;
    q4_k.q4_k = true;

    const auto quantized = [&](int bits, int group, int asymmetric) {
        LayerForm form = linear;
        form.quantization = {bits, group, asymmetric, {}};
        return form;
    };
    const auto in_8_bits = [](LayerForm form) {
        form.int8_products = true;
        return form;
    };
    const auto ffn = [](LayerForm form, halyard_norm norm = HALYARD_NORM_NONE, bool deferred = false) {
        form.is_ffn = true;
        form.norm = norm;
        form.has_residual = norm != HALYARD_NORM_NONE;
        form.deferred_norm = deferred;
        return form;
    };
    return {
        {"linear", linear},
        {"linear.q8_0", quantized(8, 32, 0)},
        {"linear.q4_0", quantized(4, 32, 0)},
        {"linear.q4_k", q4_k},
        {"linear.q8_0.int8", in_8_bits(quantized(8, 32, 0))},
        {"linear.q4_0.int8", in_8_bits(quantized(4, 32, 0))},
        {"linear.q4_k.int8", in_8_bits(q4_k)},
        {"linear.int4_128", quantized(4, 128, 0)},
        {"linear.uint4_128", quantized(4, 128, 1)},
        {"linear.uint4_128.int8", in_8_bits(quantized(4, 128, 1))},
        {"linear_bias_gelu_tanh", up_gelu},
        {"linear_bias_residual", down},
        {"linear_swiglu", swiglu},
        {"linear_geglu_tanh", geglu},
        {"ffn_swiglu", ffn(swiglu)},
        {"ffn_geglu_tanh", ffn(geglu)},
        {"ffn_gelu_tanh", ffn(up_gelu)},
        {"rms_norm_ffn_swiglu_residual", ffn(swiglu, HALYARD_NORM_RMS)},
        {"rms_norm_ffn_swiglu_residual.deferred", ffn(swiglu, HALYARD_NORM_RMS, true)},
        {"layer_norm_ffn_gelu_tanh_residual", ffn(up_gelu, HALYARD_NORM_LAYER)},
        {"layer_norm_ffn_gelu_tanh_residual.deferred", ffn(up_gelu, HALYARD_NORM_LAYER, true)},
    };
}

Row normalized(const LayerForm &form, const LayerReference &values, const Row &x) {
    if (form.norm == HALYARD_NORM_NONE) {
        return x;
    }
    NormParameters parameters;
    parameters.weight = values.norm_weight.empty() ? nullptr : &values.norm_weight;
    parameters.bias = values.norm_bias.empty() ? nullptr : &values.norm_bias;
    parameters.eps = form.eps();
    return values_of(form.norm == HALYARD_NORM_RMS ? rms_norm(x, parameters) : layer_norm(x, parameters));
}

}  // namespace

double LayerForm::bytes_of_quantized_weight(std::int64_t d) const {
    return q4_k ? static_cast<double>(Q4KMatrix::block_bytes) / static_cast<double>(Q4KMatrix::block_inputs)
                : bytes_of_weight(quantization, d);
}

const std::vector<Layer> &layers() {
    static const std::vector<Layer> all = make_layers();
    return all;
}

const LayerForm *find_layer(const std::string &name) {
    for (const Layer &layer : layers()) {
        if (layer.name == name) {
            return &layer.form;
        }
    }
    return nullptr;
}

halyard_pack_options pack_options(const LayerForm &form, const DLTensor *up, const DLTensor *norm_weight,
                                  const DLTensor *norm_bias) {
    halyard_pack_options options{};
    options.up = up;
    options.quantization = form.quantization;
    if (form.deferred_norm) {
        options.norm_weight = norm_weight;
        options.norm_bias = norm_bias;
    }
    return options;
}

halyard_status call_layer(const halyard_context *context, const LayerForm &form, const LayerTensors &tensors) {
    if (!form.is_ffn) {
        halyard_linear_options options{};
        options.bias = tensors.bias;
        options.activation = form.activation;
        options.beta = form.beta;
        options.residual = tensors.residual;
        return halyard_linear(context, tensors.x, tensors.first, &options, tensors.y);
    }
    halyard_ffn_options options{};
    options.norm = form.norm;
    options.eps = form.eps();
    options.deferred_norm = form.deferred_norm ? 1 : 0;
    if (!form.deferred_norm) {
        options.norm_weight = tensors.norm_weight;
        options.norm_bias = tensors.norm_bias;
    }
    options.activation = form.activation;
    options.bias = tensors.bias;
    options.bias_down = tensors.bias_down;
    options.residual = form.has_residual ? 1 : 0;
    return halyard_ffn(context, tensors.x, tensors.first, tensors.down, &options, tensors.y);
}

Row expected_of_layer(const LayerForm &form, const LayerReference &values, const Row &x, const Row &residual,
                      const std::vector<std::int64_t> &columns) {
    const Row inner = normalized(form, values, x);
    const LayerActivation &activation = layer_activation(form.activation);
    const auto biased = [](const Products &product, const Row &bias, const Row &in, std::int64_t column) {
        return product(in, column) + (bias.empty() ? 0 : bias[static_cast<std::size_t>(column)]);
    };
    const auto first = [&](std::int64_t column) {
        const double value = activation.at(biased(values.first, values.bias, inner, column), form.beta);
        return form.gated ? value * values.up(inner, column) : value;
    };
    Row hidden;
    for (std::int64_t column = 0; form.is_ffn && column < values.d_out; column++) {
        hidden.push_back(first(column));
    }
    Row y;
    for (const std::int64_t column : columns) {
        const double added = !form.has_residual ? 0 : (form.is_ffn ? x : residual)[static_cast<std::size_t>(column)];
        y.push_back((form.is_ffn ? biased(values.down, values.bias_down, hidden, column) : first(column)) + added);
    }
    return y;
}

}  // namespace halyard::operations
