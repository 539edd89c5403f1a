// LayerNorm with and without residual, and its statistics: the public functions.
#include "api/norm.h"

using namespace halyard;

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

halyard_status halyard_layer_norm_scale(const halyard_context *context, const DLTensor *x, float eps, DLTensor *mean,
                                        DLTensor *scale) {
    Checker check("halyard_layer_norm_scale", Devices::cpu_or_cuda);
    return norm_statistics(check, context, HALYARD_NORM_LAYER, x, eps, 0, mean, scale);
}
