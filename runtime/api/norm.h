// What the norms and softmax share.
#ifndef HALYARD_RUNTIME_API_NORM_H
#define HALYARD_RUNTIME_API_NORM_H

#include <initializer_list>

#include "core/backend.h"
#include "core/calls/row_vector.h"
#include "core/row_iterator.h"

namespace halyard {

inline void check_rows(Checker &check, const View &x, std::initializer_list<const View *> others) {
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

inline FusedRows check_fused_rows(Checker &check, const DLTensor *x, const DLTensor *residual,
                                  const DLTensor *residual_out, const DLTensor *y) {
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

inline halyard_status norm_statistics(Checker &check, const halyard_context *context, halyard_norm norm,
                                      const DLTensor *x, float eps, unsigned flags, DLTensor *mean, DLTensor *scale) {
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

}  // namespace halyard

#endif
