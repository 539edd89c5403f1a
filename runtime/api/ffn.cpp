// Feed-forward networks: the public functions.
#include "api/ffn.h"

#include "core/backend.h"
#include "core/calls/layer_gradients.h"
#include "core/check_shapes.h"

namespace halyard {
namespace {

/** The sums: null, or f32 [..., d_ff]. */
View check_written_sums(Checker &check, const char *name, const DLTensor *tensor, const FfnCall &call) {
    if (check.failed() || !tensor) {
        return View();
    }
    const View view = check.output(name, tensor);
    check_width(check, view, call.up->out_features, "the out_features of up");
    check_same_rows(check, call.x, view);
    if (!check.failed() && view.on_cuda) {
        check.fail(HALYARD_UNSUPPORTED, "%s is not made on CUDA devices: it must be null there", name);
    }
    check_f32(check, view);
    return view;
}

void check_outputs(Checker &check, const halyard_ffn_options &o, const DLTensor *y, FfnCall &call) {
    call.y = check.output("y", y);
    check.same_shape(call.x, call.y);
    if (call.residual) {
        check.same_dtype(call.x, call.y);
    }
    call.sums = check_written_sums(check, "sums", o.sums, call);
    call.sums_up = check_written_sums(check, "sums_up", o.sums_up, call);
    if (!check.failed() && (o.sums_up != nullptr) != (o.sums && call.up->gated)) {
        check.fail(HALYARD_INVALID_ARGUMENT, call.up->gated ? "sums and sums_up of gated weights belong together"
                                                            : "sums_up is given, but up holds one matrix");
    }
    if (check.failed()) {
        return;
    }
    const View up = memory_view("the packed bytes of up", call.up->block, call.up->bytes);
    const View down = memory_view("the packed bytes of down", call.down->block, call.down->bytes);
    check_outputs_apart(check, {&call.y, &call.sums, &call.sums_up},
                        {&call.norm_weight, &call.norm_bias, &call.bias, &call.bias_up, &call.bias_down, &up, &down});
    // The rows of a block are read before any of them is written, but where they are added: each element to its own.
    check.no_overlap(call.y, call.x, call.residual);
    check_outputs_apart(check, {&call.sums, &call.sums_up}, {&call.x});
}

}  // namespace

FfnCall check_ffn_operands(Checker &check, const DLTensor *x, const halyard_weights *up, const halyard_weights *down,
                           const halyard_ffn_options &o) {
    FfnCall call;
    call.up = up;
    call.down = down;
    call.norm = o.norm;
    call.deferred_norm = o.deferred_norm != 0;
    call.activation = o.activation;
    call.beta = o.beta;
    call.residual = o.residual != 0;
    call.x = check.tensor("x", x);
    check.not_null("up", up);
    check.not_null("down", down);
    if (check.failed()) {
        return call;
    }
    check_same_device(check, call.x, "up", *up);
    check_same_device(check, call.x, "down", *down);
    check_width(check, call.x, up->in_features, "the in_features of up");
    if (!check.failed() && down->gated) {
        check.fail(HALYARD_INVALID_ARGUMENT, "down holds gate and up, but must hold one matrix");
    }
    if (!check.failed() && down->out_features != call.x.width()) {
        check.fail(HALYARD_INVALID_ARGUMENT, "down has %lld out_features, but must have %lld, the width of x",
                   static_cast<long long>(down->out_features), static_cast<long long>(call.x.width()));
    }
    if (!check.failed() && down->in_features != up->out_features) {
        check.fail(HALYARD_INVALID_ARGUMENT, "down has %lld in_features, but must have %lld, the out_features of up",
                   static_cast<long long>(down->in_features), static_cast<long long>(up->out_features));
    }

    if (!check.failed() && (o.norm < HALYARD_NORM_NONE || o.norm > HALYARD_NORM_LAYER)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "norm is %d, which is no value of halyard_norm", static_cast<int>(o.norm));
    }
    if (!check.failed() && o.norm_weight && (o.norm == HALYARD_NORM_NONE || o.deferred_norm)) {
        check.fail(HALYARD_INVALID_ARGUMENT, o.deferred_norm
                                                 ? "norm_weight is given, but deferred_norm takes it from up"
                                                 : "norm_weight is given, but norm is HALYARD_NORM_NONE");
    }
    if (!check.failed() && o.norm_bias && (o.norm != HALYARD_NORM_LAYER || o.deferred_norm)) {
        check.fail(HALYARD_INVALID_ARGUMENT, o.deferred_norm
                                                 ? "norm_bias is given, but deferred_norm takes it from up"
                                                 : "norm_bias is given, but norm is not HALYARD_NORM_LAYER");
    }
    if (!check.failed() && o.deferred_norm && o.norm == HALYARD_NORM_NONE) {
        check.fail(HALYARD_INVALID_ARGUMENT, "deferred_norm is set, but norm is HALYARD_NORM_NONE");
    }
    if (!check.failed() && o.deferred_norm && !up->norm_folded) {
        check.fail(HALYARD_INVALID_ARGUMENT, "deferred_norm is set, but up was packed without the norm's weight");
    }
    call.norm_weight = check.row_parameter("norm_weight", o.norm_weight, call.x);
    call.norm_bias = check.row_parameter("norm_bias", o.norm_bias, call.x);
    if (o.norm == HALYARD_NORM_RMS) {
        call.rms = rms_norm_scalars(check, "norm_flags", call.x, o.eps, o.norm_flags, 1.0f);
        if (!check.failed() && o.deferred_norm && (o.norm_flags & HALYARD_RMS_UNIT_OFFSET)) {
            check.fail(HALYARD_INVALID_ARGUMENT,
                       "norm_flags has HALYARD_RMS_UNIT_OFFSET, but deferred_norm takes the weight from "
                       "up: pack it with norm_unit_offset");
        }
    } else {
        call.rms = layer_norm_scalars(check, call.x, o.eps);
        if (!check.failed() && o.norm_flags != 0) {
            check.fail(HALYARD_INVALID_ARGUMENT, "norm_flags is 0x%x, but must be 0 where norm is not HALYARD_NORM_RMS",
                       o.norm_flags);
        }
    }

    check_activation(check, "activation", o.activation, "beta", o.beta);
    call.bias = check_vector(check, "bias", o.bias, up->out_features);
    if (!check.failed() && o.bias_up && !up->gated) {
        check.fail(HALYARD_INVALID_ARGUMENT, "bias_up is given, but up holds one matrix, not gate and up");
    }
    call.bias_up = check_vector(check, "bias_up", o.bias_up, up->out_features);
    call.bias_down = check_vector(check, "bias_down", o.bias_down, down->out_features);
    return call;
}

void record_matrices(Checker &check, const FfnCall &call) {
    if (!check.failed()) {
        check.record("", "up", *call.up);
        check.record("", "down", *call.down);
    }
}

}  // namespace halyard

using namespace halyard;

halyard_status halyard_ffn(const halyard_context *context, const DLTensor *x, const halyard_weights *up,
                           const halyard_weights *down, const halyard_ffn_options *options, DLTensor *y) {
    Checker check("halyard_ffn", Devices::cpu_or_cuda);
    const halyard_ffn_options none = {};
    const halyard_ffn_options &o = options ? *options : none;
    FfnCall call = check_ffn_operands(check, x, up, down, o);
    check_outputs(check, o, y, call);
    record_matrices(check, call);
    call.rounded = !check.failed() && rounds_between(context_or_default(context), *up, call.x.dtype) &&
                   rounds_between(context_or_default(context), *down, call.x.dtype);
    return run_call(check, context, &Backend::ffn, call);
}

int64_t halyard_ffn_hidden_size(int64_t d_model, int64_t multiple_of) {
    if (d_model < 1 || multiple_of < 1 || d_model / 3 > INT64_MAX / 8) {
        return 0;
    }
    const int64_t hidden = d_model / 3 * 8 + d_model % 3 * 8 / 3, over = hidden % multiple_of;
    const int64_t add = over == 0 ? 0 : multiple_of - over;
    return hidden > INT64_MAX - add ? 0 : hidden + add;
}
