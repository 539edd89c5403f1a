// The gradients of linear layers: the public function.
#include "api/elementwise.h"
#include "core/check_shapes.h"

namespace halyard {
namespace {

KernelOf<arguments::Glu> gradient_of_activation(halyard_activation activation) {
    switch (activation) {
    case HALYARD_RELU:
        return kernels::relu_backward;
    case HALYARD_RELU2:
        return kernels::relu2_backward;
    case HALYARD_GELU:
        return kernels::gelu_backward;
    case HALYARD_GELU_TANH:
        return kernels::gelu_tanh_backward;
    case HALYARD_GELU_SIGMOID:
        return kernels::gelu_sigmoid_backward;
    case HALYARD_SILU:
        return kernels::silu_backward;
    case HALYARD_SWISH:
        return kernels::swish_backward;
    case HALYARD_SIGMOID:
        return kernels::sigmoid_backward;
    case HALYARD_TANH:
        return kernels::tanh_backward;
    default:
        return kernels::exp_backward;
    }
}

/** Fails for activations whose gated unit the library does not have by itself. */
KernelOf<arguments::GluBackward> gradient_of_gated_unit(Checker &check, halyard_activation activation) {
    switch (activation) {
    case HALYARD_IDENTITY:
        return kernels::bilinear_backward;
    case HALYARD_RELU:
        return kernels::reglu_backward;
    case HALYARD_GELU:
        return kernels::geglu_backward;
    case HALYARD_GELU_TANH:
        return kernels::geglu_tanh_backward;
    case HALYARD_SILU:
        return kernels::swiglu_beta1_backward;
    case HALYARD_SWISH:
        return kernels::swiglu_backward;
    case HALYARD_SIGMOID:
        return kernels::glu_backward;
    default:
        if (!check.failed()) {
            check.fail(HALYARD_UNSUPPORTED, "options.activation is %d, which has no gradient with gated weights",
                       static_cast<int>(activation));
        }
        return {};
    }
}

void check_plain_weights(Checker &check, const halyard_weights &weights) {
    if (check.failed()) {
        return;
    }
    if (weights.codes || weights.dtype != DType::f32) {
        check.fail(HALYARD_UNSUPPORTED, "weights holds %s, but gradients need a matrix packed in f32",
                   weights.codes ? "a quantized matrix" : "16-bit values");
    } else if (weights.norm_folded) {
        check.fail(HALYARD_UNSUPPORTED, "weights has a norm folded in: pack the matrix without, and call the norm");
    }
}

/** Null, or the values before the activation as the forward call wrote them. */
View check_read_sums(Checker &check, const char *name, const DLTensor *tensor, const View &dy) {
    if (check.failed() || !tensor) {
        return View();
    }
    const View view = check.tensor(name, tensor);
    check.same_shape(dy, view);
    check_f32(check, view);
    return view;
}

void check_options(Checker &check, const halyard_linear_options &o, LinearBackwardCall &call) {
    check_activation(check, "options.activation", o.activation, "options.beta", o.beta);
    for (const auto &[name, tensor] : {std::pair{"options.row_scale", o.row_scale}, {"options.row_mean", o.row_mean}}) {
        if (!check.failed() && tensor) {
            check.fail(HALYARD_UNSUPPORTED, "%s is given, but gradients go without: scale rows before the layer", name);
        }
    }
    call.sums = check_read_sums(check, "options.sums", o.sums, call.dy);
    call.sums_up = check_read_sums(check, "options.sums_up", o.sums_up, call.dy);
    if (check.failed()) {
        return;
    }
    const bool gated = call.weights->gated;
    call.beta = o.beta;
    call.activated = o.activation != HALYARD_IDENTITY;
    if (gated) {
        call.gated_unit = without_beta(gradient_of_gated_unit(check, o.activation), o.beta);
    } else if (call.activated) {
        call.activation = without_beta(gradient_of_activation(o.activation), o.beta);
    }
    if (!check.failed() && (gated || call.activated) && !o.sums) {
        check.fail(HALYARD_INVALID_ARGUMENT, "options.sums is null: the forward call must write it, with an activation "
                                             "or gated weights");
    }
    if (!check.failed() && gated != (o.sums_up != nullptr)) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   gated ? "options.sums_up is null: the forward call must write it, with gated weights"
                         : "options.sums_up is given, but weights holds one matrix, not gate and up");
    }
}

/** A gradient of weights or a bias: null, or f32 of this shape. */
View check_gradient(Checker &check, const char *name, const DLTensor *tensor, int rank, int64_t rows, int64_t width) {
    if (check.failed() || !tensor) {
        return View();
    }
    const View view = check.output(name, tensor);
    const bool right = view.rank == rank && view.width() == width && (rank == 1 || view.shape[0] == rows);
    if (!check.failed() && !right && rank == 2) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s must have shape [%lld, %lld] in this layout", name,
                   static_cast<long long>(rows), static_cast<long long>(width));
    } else if (!check.failed() && !right) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s must have shape [%lld], the out_features of weights", name,
                   static_cast<long long>(width));
    }
    check_f32(check, view);
    return view;
}

void check_gradients(Checker &check, const halyard_linear_gradients &g, LinearBackwardCall &call) {
    if (!check.failed() && g.layout != HALYARD_WEIGHT_OUT_IN && g.layout != HALYARD_WEIGHT_IN_OUT) {
        check.fail(HALYARD_INVALID_ARGUMENT, "gradients.layout is %d, which is no value of halyard_weight_layout",
                   static_cast<int>(g.layout));
    }
    if (!check.failed() && !call.weights->gated && (g.dweight_up || g.dbias_up)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "gradients.%s is given, but weights holds one matrix, not gate and up",
                   g.dweight_up ? "dweight_up" : "dbias_up");
    }
    if (check.failed()) {
        return;
    }
    const int64_t in = call.weights->in_features, out = call.weights->out_features;
    call.in_out = g.layout == HALYARD_WEIGHT_IN_OUT;
    call.accumulate = g.accumulate != 0;
    const int64_t rows = call.in_out ? in : out, width = call.in_out ? out : in;
    call.dweight = check_gradient(check, "gradients.dweight", g.dweight, 2, rows, width);
    call.dweight_up = check_gradient(check, "gradients.dweight_up", g.dweight_up, 2, rows, width);
    call.dbias = check_gradient(check, "gradients.dbias", g.dbias, 1, 1, out);
    call.dbias_up = check_gradient(check, "gradients.dbias_up", g.dbias_up, 1, 1, out);
    if (!check.failed() && g.dx) {
        call.dx = check.output("gradients.dx", g.dx);
        check.same_shape(call.x, call.dx);
        check_f32(check, call.dx);
    }
    const View *const outputs[] = {&call.dx, &call.dweight, &call.dweight_up, &call.dbias, &call.dbias_up};
    View packed = memory_view("the packed bytes of weights", call.weights->block, call.weights->bytes);
    for (const View *const *output = std::begin(outputs); output != std::end(outputs); output++) {
        for (const View *input : {&call.x, &call.dy, &call.sums, &call.sums_up, &packed}) {
            check.no_overlap(**output, *input, false);
        }
        for (const View *const *other = std::begin(outputs); other != output; other++) {
            check.no_overlap(**output, **other, false);
        }
        // The first of all but dx, if there is one.
        call.y = (*output)->data && (!call.y.data || call.y.data == call.dx.data) ? **output : call.y;
    }
}

LinearBackwardCall check_linear_backward(Checker &check, const DLTensor *x, const halyard_weights *weights,
                                         const DLTensor *dy, const halyard_linear_options &options,
                                         const halyard_linear_gradients *gradients) {
    LinearBackwardCall call;
    call.weights = weights;
    call.x = check.tensor("x", x);
    check.not_null("weights", weights);
    call.dy = check.tensor("dy", dy);
    check.not_null("gradients", gradients);
    if (check.failed()) {
        return call;
    }
    check.record("", "weights", *weights);
    check_same_device(check, call.x, "weights", *weights);
    check_width(check, call.x, weights->in_features, "the in_features of weights");
    check_width(check, call.dy, weights->out_features, "the out_features of weights");
    check_same_rows(check, call.x, call.dy);
    check_f32(check, call.x);
    check_f32(check, call.dy);
    check_plain_weights(check, *weights);
    check_options(check, options, call);
    check_gradients(check, *gradients, call);
    return call;
}

}  // namespace
}  // namespace halyard

using namespace halyard;

halyard_status halyard_linear_backward(const halyard_context *context, const DLTensor *x,
                                       const halyard_weights *weights, const DLTensor *dy,
                                       const halyard_linear_options *options,
                                       const halyard_linear_gradients *gradients) {
    Checker check("halyard_linear_backward");
    const halyard_linear_options none = {};
    const LinearBackwardCall call = check_linear_backward(check, x, weights, dy, options ? *options : none, gradients);
    return run_call(check, context, &Backend::linear_backward, call);
}
