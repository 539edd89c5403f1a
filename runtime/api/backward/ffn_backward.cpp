// The gradients of feed-forward networks: the public function.
#include "api/ffn.h"
#include "core/backend.h"
#include "core/calls/layer_gradients.h"
#include "core/check_shapes.h"

namespace halyard {
namespace {

/** The norm's gradients, and where the forward call left something out. */
void check_norm_gradients(Checker &check, const halyard_ffn_options &o, const halyard_ffn_gradients &g,
                          FfnBackwardCall &call) {
    if (!check.failed() && o.deferred_norm) {
        check.fail(HALYARD_UNSUPPORTED,
                   "options.deferred_norm is set, but gradients go without: pack up without a norm");
    }
    if (!check.failed() && g.dnorm_weight && !o.norm_weight) {
        check.fail(HALYARD_INVALID_ARGUMENT, "gradients.dnorm_weight is given, but there is no options.norm_weight");
    }
    if (!check.failed() && g.dnorm_bias && o.norm != HALYARD_NORM_LAYER) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "gradients.dnorm_bias is given, but options.norm is not HALYARD_NORM_LAYER");
    }
    call.dnorm_weight = check_vector_gradient(check, "gradients.dnorm_weight", g.dnorm_weight, call.ffn.x.width());
    call.dnorm_bias = check_vector_gradient(check, "gradients.dnorm_bias", g.dnorm_bias, call.ffn.x.width());
}

void check_gradients(Checker &check, const halyard_ffn_options &o, const halyard_ffn_gradients &g,
                     FfnBackwardCall &call) {
    check_gradient_layout(check, "gradients.layout", g.layout);
    if (!check.failed() && !call.ffn.up->gated && (g.dweight_up || g.dbias_up)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "gradients.%s is given, but up holds one matrix, not gate and up",
                   g.dweight_up ? "dweight_up" : "dbias_up");
    }
    if (check.failed()) {
        return;
    }
    LinearBackwardCall &up = call.up, &down = call.down;
    up.in_out = down.in_out = g.layout == HALYARD_WEIGHT_IN_OUT;
    up.accumulate = down.accumulate = g.accumulate != 0;
    const int64_t d_model = call.ffn.x.width(), d_ff = up.weights->out_features;
    const auto matrix = [&](const char *name, const DLTensor *tensor, int64_t in, int64_t out) {
        return up.in_out ? check_matrix_gradient(check, name, tensor, in, out)
                         : check_matrix_gradient(check, name, tensor, out, in);
    };
    up.dweight = matrix("gradients.dweight", g.dweight, d_model, d_ff);
    up.dweight_up = matrix("gradients.dweight_up", g.dweight_up, d_model, d_ff);
    down.dweight = matrix("gradients.dweight_down", g.dweight_down, d_ff, d_model);
    up.dbias = check_vector_gradient(check, "gradients.dbias", g.dbias, d_ff);
    up.dbias_up = check_vector_gradient(check, "gradients.dbias_up", g.dbias_up, d_ff);
    down.dbias = check_vector_gradient(check, "gradients.dbias_down", g.dbias_down, d_model);
    check_norm_gradients(check, o, g, call);
    call.dx = check_input_gradient(check, "gradients.dx", g.dx, call.ffn.x);
    const std::initializer_list<const View *> outputs = {&call.dx,      &up.dweight,        &up.dweight_up,
                                                         &down.dweight, &up.dbias,          &up.dbias_up,
                                                         &down.dbias,   &call.dnorm_weight, &call.dnorm_bias};
    const View packed_up = memory_view("the packed bytes of up", up.weights->block, up.weights->bytes);
    const View packed_down = memory_view("the packed bytes of down", down.weights->block, down.weights->bytes);
    check_outputs_apart(check, outputs,
                        {&call.ffn.x, &call.dy, &up.sums, &up.sums_up, &call.ffn.norm_weight, &call.ffn.norm_bias,
                         &packed_up, &packed_down});
    call.y = any_output(outputs);
}

FfnBackwardCall check_ffn_backward(Checker &check, const DLTensor *x, const halyard_weights *up,
                                   const halyard_weights *down, const DLTensor *dy, const halyard_ffn_options &options,
                                   const halyard_ffn_gradients *gradients) {
    FfnBackwardCall call;
    call.ffn = check_ffn_operands(check, x, up, down, options);
    call.dy = check.tensor("dy", dy);
    check.not_null("gradients", gradients);
    if (check.failed()) {
        return call;
    }
    call.up.weights = up;
    call.down.weights = down;
    check.same_shape(call.ffn.x, call.dy);
    check_f32(check, call.ffn.x);
    check_f32(check, call.dy);
    check_plain_weights(check, "up", *up);
    check_plain_weights(check, "down", *down);
    check_layer_sums(check, "options.activation", options.activation, options.beta, options.sums, options.sums_up, true,
                     call.ffn.x, call.up);
    check_gradients(check, options, *gradients, call);
    record_matrices(check, call.ffn);
    if (!check.failed()) {
        const ActivationKernels of = activation_kernels(options.activation, options.beta);
        call.activation = of.value;
        call.gated_unit = of.unit;
    }
    return call;
}

}  // namespace
}  // namespace halyard

using namespace halyard;

halyard_status halyard_ffn_backward(const halyard_context *context, const DLTensor *x, const halyard_weights *up,
                                    const halyard_weights *down, const DLTensor *dy, const halyard_ffn_options *options,
                                    const halyard_ffn_gradients *gradients) {
    Checker check("halyard_ffn_backward");
    const halyard_ffn_options none = {};
    const FfnBackwardCall call = check_ffn_backward(check, x, up, down, dy, options ? *options : none, gradients);
    return run_call(check, context, &Backend::ffn_backward, call);
}
