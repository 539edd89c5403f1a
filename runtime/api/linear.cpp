// Linear layers: the public function.
#include "core/backend.h"
#include "core/calls/row_vector.h"
#include "core/check_shapes.h"

namespace halyard {
namespace {

/** The values before the activation: null, or f32 with the shape of y. */
View check_written_sums(Checker &check, const char *name, const DLTensor *tensor, const View &y) {
    if (check.failed() || !tensor) {
        return View();
    }
    const View view = check.output(name, tensor);
    check.same_shape(y, view);
    if (!check.failed() && view.on_cuda) {
        check.fail(HALYARD_UNSUPPORTED, "%s is not made on CUDA devices: it must be null there", name);
    }
    if (!check.failed() && view.dtype != DType::f32) {
        check.fail(HALYARD_UNSUPPORTED, "%s must have dtype f32", name);
    }
    return view;
}

LinearCall check_linear(Checker &check, const DLTensor *x, const halyard_weights *weights,
                        const halyard_linear_options &o, DLTensor *y) {
    LinearCall call;
    call.weights = weights;
    call.activation = o.activation;
    call.beta = o.beta;
    call.x = check.tensor("x", x);
    check.not_null("weights", weights);
    call.y = check.output("y", y);
    if (check.failed()) {
        return call;
    }
    check.record("", "weights", *weights);
    check_same_device(check, call.x, "weights", *weights);
    check_width(check, call.x, weights->in_features, "the in_features of weights");
    check_width(check, call.y, weights->out_features, "the out_features of weights");
    check_same_rows(check, call.x, call.y);
    call.row_scale = check_row_vector(check, "row_scale", o.row_scale, call.x, false);
    call.row_mean = check_row_vector(check, "row_mean", o.row_mean, call.x, false);
    call.bias = check_vector(check, "bias", o.bias, weights->out_features);
    if (!check.failed() && o.bias_up && !weights->gated) {
        check.fail(HALYARD_INVALID_ARGUMENT, "bias_up is given, but weights holds one matrix, not gate and up");
    }
    call.bias_up = check_vector(check, "bias_up", o.bias_up, weights->out_features);
    check_activation(check, "activation", o.activation, "beta", o.beta);
    if (!check.failed() && o.residual) {
        call.residual = check.tensor("residual", o.residual);
        check.same_shape(call.y, call.residual);
        check.same_dtype(call.y, call.residual);
        check.no_overlap(call.y, call.residual, true);
    }
    call.sums = check_written_sums(check, "sums", o.sums, call.y);
    call.sums_up = check_written_sums(check, "sums_up", o.sums_up, call.y);
    if (!check.failed() && (o.sums_up != nullptr) != (o.sums && weights->gated)) {
        check.fail(HALYARD_INVALID_ARGUMENT, weights->gated ? "sums and sums_up of gated weights belong together"
                                                            : "sums_up is given, but weights holds one matrix");
    }
    View packed = memory_view("the packed bytes of weights", weights->block, weights->bytes);
    for (const View *output : {&call.y, &call.sums, &call.sums_up}) {
        for (const View *input : {&call.x, &call.bias, &call.bias_up, &call.row_scale, &call.row_mean, &packed}) {
            check.no_overlap(*output, *input, false);
        }
    }
    for (const View *other : {&call.y, &call.residual}) {
        check.no_overlap(call.sums, *other, false);
        check.no_overlap(call.sums_up, *other, false);
    }
    check.no_overlap(call.sums_up, call.sums, false);
    return call;
}

}  // namespace
}  // namespace halyard

using namespace halyard;

halyard_status halyard_linear(const halyard_context *context, const DLTensor *x, const halyard_weights *weights,
                              const halyard_linear_options *options, DLTensor *y) {
    Checker check("halyard_linear", Devices::cpu_or_cuda);
    const halyard_linear_options none = {};
    const LinearCall call = check_linear(check, x, weights, options ? *options : none, y);
    return run_call(check, context, &Backend::linear, call);
}
