// Products with packed weights, FFNs and their gradients.
#include "fuzz/c_api_session.h"

namespace halyard::tests {

void Session::linear() {
    Call call(in_, tensor_memory());
    const halyard_weights *weights = weights_[in_.in(0, places - 1)];
    halyard_weights_info info{};
    if (weights) {
        halyard_weights_get_info(weights, &info);
    }
    const Shape before = leading();
    const Shape of_rows = before.rank > 0 ? before : Shape().with(1), of_columns = Shape().with(info.out_features);
    const DLDataType type = dtype();
    const DLTensor *x = call.input(before.with(info.in_features), dtype());
    halyard_linear_options options{};
    options.row_scale = in_.one_in(3) ? call.input(of_rows, f32) : nullptr;
    options.row_mean = in_.one_in(4) ? call.input(of_rows, f32) : nullptr;
    options.bias = in_.one_in(3) ? call.input(of_columns, dtype()) : nullptr;
    options.bias_up = in_.one_in(4) ? call.input(of_columns, dtype()) : nullptr;
    options.activation = value<halyard_activation>(10);
    options.beta = number(1.5f);
    options.residual = in_.one_in(3) ? call.input(before.with(info.out_features), type) : nullptr;
    DLTensor *y = call.output(before.with(info.out_features), type);
    options.sums = in_.one_in(4) ? call.output(before.with(info.out_features), f32) : nullptr;
    options.sums_up = in_.one_in(6) ? call.output(before.with(info.out_features), f32) : nullptr;
    if (call.may_be_made()) {
        // Without its options the call does not see their tensors.
        const bool plain = !options.row_scale && !options.row_mean && !options.bias && !options.bias_up &&
                           !options.residual && !options.sums && !options.sums_up;
        call.returned("halyard_linear",
                      halyard_linear(context(), x, weights, plain && in_.one_in(2) ? nullptr : &options, y));
    }
}

void Session::linear_gradients() {
    Call call(in_, tensor_memory());
    const halyard_weights *weights = weights_[in_.in(0, places - 1)];
    halyard_weights_info info{};
    if (weights) {
        halyard_weights_get_info(weights, &info);
    }
    const DLDataType type = in_.one_in(8) ? dtype() : f32;
    const Shape before = leading(), of_x = before.with(info.in_features), of_y = before.with(info.out_features);
    const DLTensor *x = call.input(of_x, type), *dy = call.input(of_y, type);
    halyard_linear_options options{};
    options.activation = value<halyard_activation>(10);
    options.beta = number(1.5f);
    // Read here, though forward calls write them.
    options.sums = in_.one_in(4) ? nullptr : const_cast<DLTensor *>(call.input(of_y, type));
    options.sums_up = info.gated ? const_cast<DLTensor *>(call.input(of_y, type)) : nullptr;
    halyard_linear_gradients gradients{};
    gradients.layout = value<halyard_weight_layout>(1);
    gradients.accumulate = in_.in(0, 1);
    const Shape of_bias = Shape().with(info.out_features);
    const Shape of_weight = gradients.layout == HALYARD_WEIGHT_IN_OUT
                                ? Shape().with(info.in_features).with(info.out_features)
                                : of_bias.with(info.in_features);
    gradients.dx = in_.one_in(3) ? nullptr : call.output(of_x, type);
    gradients.dweight = in_.one_in(3) ? nullptr : call.output(of_weight, f32);
    gradients.dbias = in_.one_in(3) ? nullptr : call.output(of_bias, f32);
    gradients.dweight_up = info.gated && in_.one_in(2) ? call.output(of_weight, f32) : nullptr;
    gradients.dbias_up = info.gated && in_.one_in(2) ? call.output(of_bias, f32) : nullptr;
    if (call.may_be_made()) {
        call.returned("halyard_linear_backward",
                      halyard_linear_backward(context(), x, weights, dy, &options, &gradients));
    }
}

void Session::norm_scales() {
    Call call(in_, tensor_memory());
    const Shape before = leading(), of_rows = before.rank > 0 ? before : Shape().with(1);
    const DLTensor *x = call.input(before.with(in_.in(0, 40)), dtype());
    const bool layer_norm = in_.one_in(2);
    DLTensor *mean = layer_norm ? call.output(of_rows, f32) : nullptr;
    DLTensor *scale = call.output(of_rows, f32);
    if (!call.may_be_made()) {
        return;
    }
    if (layer_norm) {
        call.returned("halyard_layer_norm_scale", halyard_layer_norm_scale(context(), x, number(1e-5f), mean, scale));
    } else {
        call.returned("halyard_rms_norm_scale",
                      halyard_rms_norm_scale(context(), x, number(1e-5f), in_.one_in(4) ? flags() : 0, scale));
    }
}

void Session::ffn() {
    Call call(in_, tensor_memory());
    const halyard_weights *up = weights_[in_.in(0, places - 1)], *down = weights_[in_.in(0, places - 1)];
    halyard_weights_info info{}, down_info{};
    if (up && down) {
        halyard_weights_get_info(up, &info);
        halyard_weights_get_info(down, &down_info);
    }
    const DLDataType type = dtype();
    const Shape before = leading(), vector = Shape().with(info.in_features);
    const DLTensor *x = call.input(before.with(info.in_features), type);
    halyard_ffn_options options{};
    options.norm = value<halyard_norm>(3);
    options.norm_weight = in_.one_in(3) ? call.input(vector, vector_dtype(type)) : nullptr;
    options.norm_bias = in_.one_in(8) ? call.input(vector, vector_dtype(type)) : nullptr;
    options.eps = number(1e-5f);
    options.norm_flags = in_.one_in(8) ? flags() : 0;
    options.deferred_norm = info.norm_folded != 0;
    options.activation = value<halyard_activation>(10);
    options.beta = number(1.5f);
    options.bias = in_.one_in(3) ? call.input(Shape().with(info.out_features), dtype()) : nullptr;
    options.bias_up = in_.one_in(8) ? call.input(Shape().with(info.out_features), dtype()) : nullptr;
    options.bias_down = in_.one_in(3) ? call.input(Shape().with(down_info.out_features), dtype()) : nullptr;
    options.residual = in_.one_in(3);
    DLTensor *y = call.output(before.with(info.in_features), options.residual ? type : dtype());
    options.sums = in_.one_in(4) ? call.output(before.with(info.out_features), f32) : nullptr;
    options.sums_up = in_.one_in(6) ? call.output(before.with(info.out_features), f32) : nullptr;
    if (call.may_be_made()) {
        const bool plain = !options.norm_weight && !options.norm_bias && !options.bias && !options.bias_up &&
                           !options.bias_down && !options.sums && !options.sums_up;
        call.returned("halyard_ffn",
                      halyard_ffn(context(), x, up, down, plain && in_.one_in(4) ? nullptr : &options, y));
    }
}

void Session::ffn_gradients() {
    Call call(in_, tensor_memory());
    const halyard_weights *up = weights_[in_.in(0, places - 1)], *down = weights_[in_.in(0, places - 1)];
    halyard_weights_info info{};
    if (up) {
        halyard_weights_get_info(up, &info);
    }
    const DLDataType type = in_.one_in(8) ? dtype() : f32;
    const Shape before = leading(), of_x = before.with(info.in_features), of_sums = before.with(info.out_features);
    const Shape model = Shape().with(info.in_features), hidden = Shape().with(info.out_features);
    const DLTensor *x = call.input(of_x, type), *dy = call.input(of_x, type);
    halyard_ffn_options options{};
    options.norm = value<halyard_norm>(3);
    options.norm_weight = options.norm != HALYARD_NORM_NONE ? call.input(model, type) : nullptr;
    options.eps = number(1e-5f);
    options.norm_flags = in_.one_in(8) ? flags() : 0;
    options.activation = value<halyard_activation>(10);
    options.beta = number(1.5f);
    options.residual = in_.one_in(3);
    // Read here, though forward calls write them.
    options.sums = in_.one_in(8) ? nullptr : const_cast<DLTensor *>(call.input(of_sums, type));
    options.sums_up = info.gated ? const_cast<DLTensor *>(call.input(of_sums, type)) : nullptr;
    halyard_ffn_gradients gradients{};
    gradients.layout = value<halyard_weight_layout>(1);
    gradients.accumulate = in_.in(0, 1);
    const bool in_out = gradients.layout == HALYARD_WEIGHT_IN_OUT;
    const Shape first = in_out ? model.with(info.out_features) : hidden.with(info.in_features),
                second = in_out ? hidden.with(info.in_features) : model.with(info.out_features);
    gradients.dx = in_.one_in(3) ? nullptr : call.output(of_x, type);
    gradients.dweight = in_.one_in(3) ? nullptr : call.output(first, f32);
    gradients.dweight_up = info.gated && in_.one_in(2) ? call.output(first, f32) : nullptr;
    gradients.dweight_down = in_.one_in(3) ? nullptr : call.output(second, f32);
    gradients.dbias = in_.one_in(2) ? nullptr : call.output(hidden, f32);
    gradients.dbias_up = info.gated && in_.one_in(2) ? call.output(hidden, f32) : nullptr;
    gradients.dbias_down = in_.one_in(2) ? nullptr : call.output(model, f32);
    gradients.dnorm_weight = options.norm_weight && in_.one_in(2) ? call.output(model, f32) : nullptr;
    gradients.dnorm_bias = options.norm == HALYARD_NORM_LAYER && in_.one_in(2) ? call.output(model, f32) : nullptr;
    if (call.may_be_made()) {
        call.returned("halyard_ffn_backward", halyard_ffn_backward(context(), x, up, down, dy, &options, &gradients));
    }
}

}  // namespace halyard::tests
