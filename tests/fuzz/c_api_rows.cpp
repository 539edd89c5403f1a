// Norms, elementwise functions, gated units and their gradients.
#include "fuzz/c_api_session.h"

#define NAMED(function) #function, function

namespace halyard::tests {
namespace {

struct Unary {
    const char *name;
    halyard_status (*call)(const halyard_context *, const DLTensor *, DLTensor *);
};
struct UnaryBeta {
    const char *name;
    halyard_status (*call)(const halyard_context *, const DLTensor *, float, DLTensor *);
};
struct Binary {
    const char *name;
    halyard_status (*call)(const halyard_context *, const DLTensor *, const DLTensor *, DLTensor *);
};
struct Packed {
    const char *name;
    halyard_status (*call)(const halyard_context *, const DLTensor *, halyard_glu_layout, DLTensor *);
};

const Unary unary_functions[] = {
    {NAMED(halyard_relu)},
    {NAMED(halyard_relu2)},
    {NAMED(halyard_gelu)},
    {NAMED(halyard_gelu_tanh)},
    {NAMED(halyard_gelu_sigmoid)},
    {NAMED(halyard_silu)},
    {NAMED(halyard_sigmoid)},
    {NAMED(halyard_tanh)},
    {NAMED(halyard_exp)},
    {NAMED(halyard_relu_derivative)},
    {NAMED(halyard_relu2_derivative)},
    {NAMED(halyard_gelu_derivative)},
    {NAMED(halyard_gelu_tanh_derivative)},
    {NAMED(halyard_gelu_sigmoid_derivative)},
    {NAMED(halyard_silu_derivative)},
    {NAMED(halyard_sigmoid_derivative)},
    {NAMED(halyard_tanh_derivative)},
    {NAMED(halyard_exp_derivative)},
};
const UnaryBeta unary_beta_functions[] = {
    {NAMED(halyard_swish)},
    {NAMED(halyard_swish_derivative)},
    {NAMED(halyard_softmax)},
};
const Binary binary_functions[] = {
    {NAMED(halyard_add)},
    {NAMED(halyard_glu)},
    {NAMED(halyard_bilinear)},
    {NAMED(halyard_reglu)},
    {NAMED(halyard_geglu)},
    {NAMED(halyard_geglu_tanh)},
    {NAMED(halyard_relu_backward)},
    {NAMED(halyard_relu2_backward)},
    {NAMED(halyard_gelu_backward)},
    {NAMED(halyard_gelu_tanh_backward)},
    {NAMED(halyard_gelu_sigmoid_backward)},
    {NAMED(halyard_silu_backward)},
    {NAMED(halyard_sigmoid_backward)},
    {NAMED(halyard_tanh_backward)},
    {NAMED(halyard_exp_backward)},
};
struct Backward {
    const char *name;
    halyard_status (*call)(const halyard_context *, const DLTensor *, const DLTensor *, const DLTensor *, DLTensor *,
                           DLTensor *);
};
struct PackedBackward {
    const char *name;
    halyard_status (*call)(const halyard_context *, const DLTensor *, halyard_glu_layout, const DLTensor *, DLTensor *);
};
const Backward backward_functions[] = {
    {NAMED(halyard_glu_backward)},   {NAMED(halyard_bilinear_backward)},   {NAMED(halyard_reglu_backward)},
    {NAMED(halyard_geglu_backward)}, {NAMED(halyard_geglu_tanh_backward)},
};
const PackedBackward packed_backward_functions[] = {
    {NAMED(halyard_glu_packed_backward)},        {NAMED(halyard_bilinear_packed_backward)},
    {NAMED(halyard_reglu_packed_backward)},      {NAMED(halyard_geglu_packed_backward)},
    {NAMED(halyard_geglu_tanh_packed_backward)},
};
const Packed packed_functions[] = {
    {NAMED(halyard_glu_packed)},   {NAMED(halyard_bilinear_packed)},   {NAMED(halyard_reglu_packed)},
    {NAMED(halyard_geglu_packed)}, {NAMED(halyard_geglu_tanh_packed)},
};

}  // namespace

void Session::norms() {
    Call call(in_, tensor_memory());
    const DLDataType type = dtype();
    const int width = in_.one_in(4) ? in_.in(0, 70) : 16;
    const Shape shape = leading().with(width), vector = Shape().with(width);
    const int kind = in_.in(0, 4);
    const DLTensor *x = call.input(shape, type);
    const DLTensor *residual = kind >= 3 ? call.input(shape, type) : nullptr;
    const DLTensor *weight = in_.one_in(2) ? call.input(vector, vector_dtype(type)) : nullptr;
    const bool has_bias = (kind == 0 || kind == 3) && in_.one_in(2);
    const DLTensor *bias = has_bias ? call.input(vector, vector_dtype(type)) : nullptr;
    DLTensor *sum = kind >= 3 ? call.output(shape, type) : nullptr;
    DLTensor *y = call.output(shape, type);
    const float eps = number(1e-5f);
    if (!call.may_be_made()) {
        return;
    }
    switch (kind) {
    case 0:
        call.returned("halyard_layer_norm", halyard_layer_norm(context(), x, weight, bias, eps, y));
        break;
    case 1:
        call.returned("halyard_rms_norm", halyard_rms_norm(context(), x, weight, eps, flags(), y));
        break;
    case 2:
        call.returned("halyard_partial_rms_norm",
                      halyard_partial_rms_norm(context(), x, weight, eps, flags(), number(0.25f), y));
        break;
    case 3:
        call.returned("halyard_add_layer_norm",
                      halyard_add_layer_norm(context(), x, residual, weight, bias, eps, sum, y));
        break;
    case 4:
        call.returned("halyard_add_rms_norm",
                      halyard_add_rms_norm(context(), x, residual, weight, eps, flags(), sum, y));
        break;
    }
}

void Session::norm_gradients() {
    Call call(in_, tensor_memory());
    const DLDataType type = dtype();
    const int width = in_.one_in(4) ? in_.in(0, 70) : 16;
    const Shape shape = leading().with(width), vector = Shape().with(width);
    const int kind = in_.in(0, 3);
    const DLTensor *x = call.input(shape, type), *dy = call.input(shape, type);
    const bool of_norm = kind < 3;  // and not of softmax
    const DLTensor *residual = of_norm && in_.one_in(2) ? call.input(shape, type) : nullptr;
    const DLTensor *weight = of_norm && in_.one_in(2) ? call.input(vector, vector_dtype(type)) : nullptr;
    constexpr DLDataType f32{kDLFloat, 32, 1};
    DLTensor *dx = call.output(shape, type);
    DLTensor *dweight = weight && in_.one_in(2) ? call.output(vector, f32) : nullptr;
    DLTensor *dbias = kind == 0 && in_.one_in(2) ? call.output(vector, f32) : nullptr;
    const float eps = number(1e-5f);
    const int accumulate = in_.in(0, 1);
    if (!call.may_be_made()) {
        return;
    }
    switch (kind) {
    case 0:
        call.returned(
            "halyard_layer_norm_backward",
            halyard_layer_norm_backward(context(), x, weight, eps, dy, residual, accumulate, dx, dweight, dbias));
        break;
    case 1:
        call.returned("halyard_rms_norm_backward", halyard_rms_norm_backward(context(), x, weight, eps, flags(), dy,
                                                                             residual, accumulate, dx, dweight));
        break;
    case 3:
        call.returned("halyard_softmax_backward", halyard_softmax_backward(context(), x, dy, number(0.5f), dx));
        break;
    case 2:
        call.returned("halyard_partial_rms_norm_backward",
                      halyard_partial_rms_norm_backward(context(), x, weight, eps, flags(), number(0.25f), dy, residual,
                                                        accumulate, dx, dweight));
        break;
    }
}

void Session::elementwise() {
    Call call(in_, tensor_memory());
    const DLDataType type = dtype();
    const int width = in_.one_in(4) ? in_.in(0, 70) : 16;
    const Shape before = leading(), shape = before.with(width);
    const int kind = in_.in(0, 11);
    const bool is_packed = kind == 4 || kind == 5 || kind == 10 || kind == 11;
    const bool is_backward = kind >= 7;
    const DLTensor *x = call.input(is_packed ? before.with(2 * width) : shape, type);
    const DLTensor *b = kind == 2 || kind == 3 || is_backward ? call.input(shape, type) : nullptr;
    const bool has_up = kind == 8 || kind == 9;
    const DLTensor *dy = has_up ? call.input(shape, type) : nullptr;
    DLTensor *y = call.output(is_packed && is_backward ? before.with(2 * width) : shape, kind == 6 ? dtype() : type);
    DLTensor *dup = has_up ? call.output(shape, type) : nullptr;
    if (!call.may_be_made()) {
        return;
    }
    switch (kind) {
    case 0: {
        const Unary f = in_.of(unary_functions);
        call.returned(f.name, f.call(context(), x, y));
        break;
    }
    case 1: {
        const UnaryBeta f = in_.of(unary_beta_functions);
        call.returned(f.name, f.call(context(), x, number(1.5f), y));
        break;
    }
    case 2: {
        const Binary f = in_.of(binary_functions);
        call.returned(f.name, f.call(context(), x, b, y));
        break;
    }
    case 3:
        call.returned("halyard_swiglu", halyard_swiglu(context(), x, b, number(1.5f), y));
        break;
    case 4: {
        const Packed f = in_.of(packed_functions);
        call.returned(f.name, f.call(context(), x, value<halyard_glu_layout>(3), y));
        break;
    }
    case 5:
        call.returned("halyard_swiglu_packed",
                      halyard_swiglu_packed(context(), x, value<halyard_glu_layout>(3), number(1.5f), y));
        break;
    case 6:
        call.returned("halyard_cast", halyard_cast(context(), x, y));
        break;
    case 7:
        call.returned("halyard_swish_backward", halyard_swish_backward(context(), x, b, number(1.5f), y));
        break;
    case 8: {
        const Backward f = in_.of(backward_functions);
        call.returned(f.name, f.call(context(), x, b, dy, y, dup));
        break;
    }
    case 9:
        call.returned("halyard_swiglu_backward", halyard_swiglu_backward(context(), x, b, dy, number(1.5f), y, dup));
        break;
    case 10: {
        const PackedBackward f = in_.of(packed_backward_functions);
        call.returned(f.name, f.call(context(), x, value<halyard_glu_layout>(3), b, y));
        break;
    }
    case 11:
        call.returned("halyard_swiglu_packed_backward",
                      halyard_swiglu_packed_backward(context(), x, value<halyard_glu_layout>(3), b, number(1.5f), y));
        break;
    }
}

}  // namespace halyard::tests
