// The norms with and without residual, their statistics, and softmax: the public functions.
#include <initializer_list>

#include "core/backend.h"
#include "core/calls/row_vector.h"
#include "core/row_iterator.h"

namespace halyard {
namespace {

void check_rows(Checker &check, const View &x, std::initializer_list<const View *> others) {
    for (const View *other : others) {
        check.same_shape(x, *other);
        check.same_dtype(x, *other);
    }
    check.rows_not_empty(x);
    if (!check.failed() && x.width() > max_columns) {
        check.fail(HALYARD_UNSUPPORTED, "%s has rows of %lld features, but at most %lld are supported", x.name,
                   static_cast<long long>(x.width()), static_cast<long long>(max_columns));
    }
}

/** The tensors of a fused add and norm. */
struct FusedRows {
    View x, residual, residual_out, y;
};

FusedRows check_fused_rows(Checker &check, const DLTensor *x, const DLTensor *residual, const DLTensor *residual_out,
                           const DLTensor *y) {
    const FusedRows t = {check.tensor("x", x), check.tensor("residual", residual),
                         check.output("residual_out", residual_out), check.output("y", y)};
    check_rows(check, t.x, {&t.residual, &t.residual_out, &t.y});
    for (const View *output : {&t.residual_out, &t.y}) {
        check.no_overlap(*output, t.x, true);
        check.no_overlap(*output, t.residual, true);
    }
    check.no_overlap(t.y, t.residual_out, false);
    return t;
}

halyard_status partial_rms_norm(const char *name, const halyard_context *context, const DLTensor *x,
                                const DLTensor *weight, float eps, unsigned flags, float p, DLTensor *y) {
    Checker check(name, Devices::cpu_or_cuda);
    const View xs = check.tensor("x", x), ys = check.output("y", y);
    check_rows(check, xs, {&ys});
    const View w = check.row_parameter("weight", weight, xs);
    check.no_overlap(ys, xs, true);
    check.no_overlap(ys, w, false);
    const RmsNormScalars scalars = rms_norm_scalars(check, "flags", xs, eps, flags, p);
    return run_call(check, context, &Backend::norm, {HALYARD_NORM_RMS, xs, w, no_view, ys, scalars});
}

halyard_status norm_statistics(Checker &check, const halyard_context *context, halyard_norm norm, const DLTensor *x,
                               float eps, unsigned flags, DLTensor *mean, DLTensor *scale) {
    const bool has_mean = norm == HALYARD_NORM_LAYER;
    const View xs = check.tensor("x", x);
    const View means = has_mean ? check_row_vector(check, "mean", mean, xs, true) : View();
    const View scales = check_row_vector(check, "scale", scale, xs, true);
    check_rows(check, xs, {});
    check.no_overlap(scales, xs, false);
    check.no_overlap(means, xs, false);
    check.no_overlap(means, scales, false);
    const RmsNormScalars scalars =
        has_mean ? layer_norm_scalars(check, xs, eps) : rms_norm_scalars(check, "flags", xs, eps, flags, 1.0f);
    if (!check.failed() && (flags & HALYARD_RMS_UNIT_OFFSET)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "flags has HALYARD_RMS_UNIT_OFFSET, which does not concern the scale");
    }
    return run_call(check, context, &Backend::norm_statistics, {norm, xs, means, scales, scalars});
}

}  // namespace
}  // namespace halyard

using namespace halyard;

halyard_status halyard_rms_norm_scale(const halyard_context *context, const DLTensor *x, float eps, unsigned flags,
                                      DLTensor *scale) {
    Checker check("halyard_rms_norm_scale", Devices::cpu_or_cuda);
    return norm_statistics(check, context, HALYARD_NORM_RMS, x, eps, flags, nullptr, scale);
}

halyard_status halyard_layer_norm_scale(const halyard_context *context, const DLTensor *x, float eps, DLTensor *mean,
                                        DLTensor *scale) {
    Checker check("halyard_layer_norm_scale", Devices::cpu_or_cuda);
    return norm_statistics(check, context, HALYARD_NORM_LAYER, x, eps, 0, mean, scale);
}

halyard_status halyard_layer_norm(const halyard_context *context, const DLTensor *x, const DLTensor *weight,
                                  const DLTensor *bias, float eps, DLTensor *y) {
    Checker check("halyard_layer_norm", Devices::cpu_or_cuda);
    const View xs = check.tensor("x", x), ys = check.output("y", y);
    check_rows(check, xs, {&ys});
    const View w = check.row_parameter("weight", weight, xs), b = check.row_parameter("bias", bias, xs);
    check.no_overlap(ys, xs, true);
    check.no_overlap(ys, w, false);
    check.no_overlap(ys, b, false);
    const RmsNormScalars scalars = layer_norm_scalars(check, xs, eps);
    return run_call(check, context, &Backend::norm, {HALYARD_NORM_LAYER, xs, w, b, ys, scalars});
}

halyard_status halyard_rms_norm(const halyard_context *context, const DLTensor *x, const DLTensor *weight, float eps,
                                unsigned flags, DLTensor *y) {
    return partial_rms_norm("halyard_rms_norm", context, x, weight, eps, flags, 1.0f, y);
}

halyard_status halyard_partial_rms_norm(const halyard_context *context, const DLTensor *x, const DLTensor *weight,
                                        float eps, unsigned flags, float p, DLTensor *y) {
    return partial_rms_norm("halyard_partial_rms_norm", context, x, weight, eps, flags, p, y);
}

halyard_status halyard_add_layer_norm(const halyard_context *context, const DLTensor *x, const DLTensor *residual,
                                      const DLTensor *weight, const DLTensor *bias, float eps, DLTensor *residual_out,
                                      DLTensor *y) {
    Checker check("halyard_add_layer_norm", Devices::cpu_or_cuda);
    const FusedRows t = check_fused_rows(check, x, residual, residual_out, y);
    const View w = check.row_parameter("weight", weight, t.x), b = check.row_parameter("bias", bias, t.x);
    for (const View *output : {&t.residual_out, &t.y}) {
        check.no_overlap(*output, w, false);
        check.no_overlap(*output, b, false);
    }
    const RmsNormScalars scalars = layer_norm_scalars(check, t.x, eps);
    return run_call(check, context, &Backend::norm,
                    {HALYARD_NORM_LAYER, t.x, w, b, t.y, scalars, t.residual, t.residual_out});
}

halyard_status halyard_add_rms_norm(const halyard_context *context, const DLTensor *x, const DLTensor *residual,
                                    const DLTensor *weight, float eps, unsigned flags, DLTensor *residual_out,
                                    DLTensor *y) {
    Checker check("halyard_add_rms_norm", Devices::cpu_or_cuda);
    const FusedRows t = check_fused_rows(check, x, residual, residual_out, y);
    const View w = check.row_parameter("weight", weight, t.x);
    check.no_overlap(t.residual_out, w, false);
    check.no_overlap(t.y, w, false);
    const RmsNormScalars scalars = rms_norm_scalars(check, "flags", t.x, eps, flags, 1.0f);
    return run_call(check, context, &Backend::norm,
                    {HALYARD_NORM_RMS, t.x, w, no_view, t.y, scalars, t.residual, t.residual_out});
}

halyard_status halyard_softmax(const halyard_context *context, const DLTensor *x, float scale, DLTensor *y) {
    Checker check("halyard_softmax", Devices::cpu_or_cuda);
    const View xs = check.tensor("x", x), ys = check.output("y", y);
    check_rows(check, xs, {&ys});
    check.no_overlap(ys, xs, true);
    check.finite("scale", scale);
    return run_call(check, context, &Backend::softmax, {xs, ys, scale});
}
