// RMSNorm with and without residual, and its statistics: the public functions.
#include "api/norm.h"

namespace halyard {
namespace {

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

}  // namespace
}  // namespace halyard

using namespace halyard;

halyard_status halyard_rms_norm(const halyard_context *context, const DLTensor *x, const DLTensor *weight, float eps,
                                unsigned flags, DLTensor *y) {
    return partial_rms_norm("halyard_rms_norm", context, x, weight, eps, flags, 1.0f, y);
}

halyard_status halyard_partial_rms_norm(const halyard_context *context, const DLTensor *x, const DLTensor *weight,
                                        float eps, unsigned flags, float p, DLTensor *y) {
    return partial_rms_norm("halyard_partial_rms_norm", context, x, weight, eps, flags, p, y);
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

halyard_status halyard_rms_norm_scale(const halyard_context *context, const DLTensor *x, float eps, unsigned flags,
                                      DLTensor *scale) {
    Checker check("halyard_rms_norm_scale", Devices::cpu_or_cuda);
    return norm_statistics(check, context, HALYARD_NORM_RMS, x, eps, flags, nullptr, scale);
}
