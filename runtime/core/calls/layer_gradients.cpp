#include "core/calls/layer_gradients.h"

#include "core/check_shapes.h"

namespace halyard {
namespace {

/** By the value of halyard_activation. */
constexpr ActivationKernels table[] = {
    {{}, {}, true, kernels::bilinear, kernels::bilinear_backward},
    {kernels::relu, kernels::relu_backward, true, kernels::reglu, kernels::reglu_backward},
    {kernels::gelu, kernels::gelu_backward, true, kernels::geglu, kernels::geglu_backward},
    {kernels::gelu_tanh, kernels::gelu_tanh_backward, true, kernels::geglu_tanh, kernels::geglu_tanh_backward},
    {kernels::gelu_sigmoid, kernels::gelu_sigmoid_backward, false, {}, {}},
    {kernels::silu, kernels::silu_backward, true, kernels::swiglu_beta1, kernels::swiglu_beta1_backward},
    {kernels::swish, kernels::swish_backward, true, kernels::swiglu, kernels::swiglu_backward},
    {kernels::sigmoid, kernels::sigmoid_backward, true, kernels::glu, kernels::glu_backward},
    {kernels::tanh, kernels::tanh_backward, false, {}, {}},
    {kernels::exp, kernels::exp_backward, false, {}, {}},
    {kernels::relu2, kernels::relu2_backward, false, {}, {}},
};
static_assert(std::size(table) == activation_count);

/** Null, or the values before the activation. */
View check_sums(Checker &check, const char *name, const DLTensor *tensor, const View &like, int64_t width) {
    if (check.failed() || !tensor) {
        return View();
    }
    const View view = check.tensor(name, tensor);
    check_width(check, view, width, "the out_features of the layer");
    check_same_rows(check, like, view);
    check_f32(check, view);
    return view;
}

}  // namespace

ActivationKernels activation_kernels(halyard_activation activation, float beta) {
    return table[activation == HALYARD_SWISH && beta == 1.0f ? HALYARD_SILU : activation];
}

void check_plain_weights(Checker &check, const char *name, const halyard_weights &weights) {
    if (check.failed()) {
        return;
    }
    if (weights.codes || weights.dtype != DType::f32) {
        check.fail(HALYARD_UNSUPPORTED, "%s holds %s, but gradients need a matrix packed in f32", name,
                   weights.codes ? "a quantized matrix" : "16-bit values");
    } else if (weights.norm_folded) {
        check.fail(HALYARD_UNSUPPORTED, "%s has a norm folded in: pack the matrix without, and call the norm", name);
    }
}

void check_layer_sums(Checker &check, const char *name, halyard_activation activation, float beta, const DLTensor *sums,
                      const DLTensor *sums_up, bool always, const View &like, LinearBackwardCall &call) {
    if (check.failed()) {
        return;
    }
    const bool gated = call.weights->gated;
    const int64_t width = call.weights->out_features;
    call.sums = check_sums(check, "options.sums", sums, like, width);
    call.sums_up = check_sums(check, "options.sums_up", sums_up, like, width);
    const ActivationKernels of = activation_kernels(activation, beta);
    call.beta = beta;
    call.activated = activation != HALYARD_IDENTITY;
    call.activation = of.gradient;
    call.gated_unit = of.unit_gradient;
    if (!check.failed() && gated && !of.has_unit) {
        check.fail(HALYARD_UNSUPPORTED, "%s is %d, which has no gradient with gated weights", name,
                   static_cast<int>(activation));
    }
    if (!check.failed() && (gated || call.activated || always) && !sums) {
        check.fail(HALYARD_INVALID_ARGUMENT, always ? "options.sums is null: the forward call must write it"
                                                    : "options.sums is null: the forward call must write it, with an "
                                                      "activation or gated weights");
    }
    if (!check.failed() && gated != (sums_up != nullptr)) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   gated ? "options.sums_up is null: the forward call must write it, with gated weights"
                         : "options.sums_up is given, but the layer has one matrix, not gate and up");
    }
}

View check_vector_gradient(Checker &check, const char *name, const DLTensor *tensor, int64_t width) {
    if (check.failed() || !tensor) {
        return View();
    }
    const View view = check.output(name, tensor);
    if (!check.failed() && (view.rank != 1 || view.width() != width)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s must have shape [%lld]", name, static_cast<long long>(width));
    }
    check_f32(check, view);
    return view;
}

View check_matrix_gradient(Checker &check, const char *name, const DLTensor *tensor, int64_t rows, int64_t width) {
    if (check.failed() || !tensor) {
        return View();
    }
    const View view = check.output(name, tensor);
    if (!check.failed() && (view.rank != 2 || view.shape[0] != rows || view.width() != width)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s must have shape [%lld, %lld] in this layout", name,
                   static_cast<long long>(rows), static_cast<long long>(width));
    }
    check_f32(check, view);
    return view;
}

View check_input_gradient(Checker &check, const char *name, const DLTensor *tensor, const View &of) {
    if (check.failed() || !tensor) {
        return View();
    }
    const View view = check.output(name, tensor);
    check.same_shape(of, view);
    check_f32(check, view);
    return view;
}

void check_gradient_layout(Checker &check, const char *name, halyard_weight_layout layout) {
    if (!check.failed() && layout != HALYARD_WEIGHT_OUT_IN && layout != HALYARD_WEIGHT_IN_OUT) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is %d, which is no value of halyard_weight_layout", name,
                   static_cast<int>(layout));
    }
}

View any_output(std::initializer_list<const View *> outputs) {
    View last;
    for (const View *const output : outputs) {
        last = output->data ? *output : last;
    }
    return last;
}

void check_outputs_apart(Checker &check, std::initializer_list<const View *> outputs,
                         std::initializer_list<const View *> inputs) {
    for (const View *const *output = outputs.begin(); output != outputs.end(); output++) {
        for (const View *const input : inputs) {
            check.no_overlap(**output, *input, false);
        }
        for (const View *const *other = outputs.begin(); other != output; other++) {
            check.no_overlap(**output, **other, false);
        }
    }
}

}  // namespace halyard
