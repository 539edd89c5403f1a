// The gradients of linear layers: the public function.
#include "core/backend.h"
#include "core/calls/layer_gradients.h"
#include "core/check_shapes.h"

namespace halyard {
namespace {

void check_options(Checker &check, const halyard_linear_options &o, LinearBackwardCall &call) {
    check_activation(check, "options.activation", o.activation, "options.beta", o.beta);
    for (const auto &[name, tensor] : {std::pair{"options.row_scale", o.row_scale}, {"options.row_mean", o.row_mean}}) {
        if (!check.failed() && tensor) {
            check.fail(HALYARD_UNSUPPORTED, "%s is given, but gradients go without: scale rows before the layer", name);
        }
    }
    check_layer_sums(check, "options.activation", o.activation, o.beta, o.sums, o.sums_up, false, call.dy, call);
}

void check_gradients(Checker &check, const halyard_linear_gradients &g, LinearBackwardCall &call) {
    check_gradient_layout(check, "gradients.layout", g.layout);
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
    call.dweight = check_matrix_gradient(check, "gradients.dweight", g.dweight, rows, width);
    call.dweight_up = check_matrix_gradient(check, "gradients.dweight_up", g.dweight_up, rows, width);
    call.dbias = check_vector_gradient(check, "gradients.dbias", g.dbias, out);
    call.dbias_up = check_vector_gradient(check, "gradients.dbias_up", g.dbias_up, out);
    call.dx = check_input_gradient(check, "gradients.dx", g.dx, call.x);
    const View packed = memory_view("the packed bytes of weights", call.weights->block, call.weights->bytes);
    const std::initializer_list<const View *> outputs = {&call.dx, &call.dweight, &call.dweight_up, &call.dbias,
                                                         &call.dbias_up};
    check_outputs_apart(check, outputs, {&call.x, &call.dy, &call.sums, &call.sums_up, &packed});
    call.y = any_output(outputs);
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
    check_plain_weights(check, "weights", *weights);
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
