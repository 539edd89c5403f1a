// What the backward pass of the norms shares.
#ifndef HALYARD_RUNTIME_API_BACKWARD_NORM_BACKWARD_H
#define HALYARD_RUNTIME_API_BACKWARD_NORM_BACKWARD_H

#include "api/norm.h"

namespace halyard {

/** A gradient that is summed over rows: null, or f32 [d]. */
inline View check_sums(Checker &check, const char *name, const DLTensor *tensor, const View &x) {
    if (check.failed() || !tensor) {
        return View();
    }
    const View view = check.output(name, tensor);
    if (!check.failed() && (view.rank != 1 || view.width() != x.width() || view.dtype != DType::f32)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s must be f32 of shape [%lld], the width of x", name,
                   static_cast<long long>(x.width()));
    }
    return view;
}

struct NormGradients {
    const DLTensor *x, *weight, *dy, *dresidual_out, *dx, *dweight, *dbias;
};

inline halyard_status norm_backward(Checker &check, const halyard_context *context, halyard_norm norm,
                                    const NormGradients &given, float eps, unsigned flags, float p, int accumulate) {
    const View x = check.tensor("x", given.x), dy = check.tensor("dy", given.dy), dx = check.output("dx", given.dx);
    const View added =
        given.dresidual_out && !check.failed() ? check.tensor("dresidual_out", given.dresidual_out) : View();
    check_rows(check, x, {&dy, &dx});
    if (given.dresidual_out) {
        check_rows(check, x, {&added});
    }
    const View weight = check.row_parameter("weight", given.weight, x);
    const View dweight = check_sums(check, "dweight", given.dweight, x),
               dbias = check_sums(check, "dbias", given.dbias, x);
    if (!check.failed() && given.dweight && !given.weight) {
        check.fail(HALYARD_INVALID_ARGUMENT, "dweight is given, but there is no weight");
    }
    for (const View *input : {&x, &dy, &added}) {
        check.no_overlap(dx, *input, true);
        check.no_overlap(dweight, *input, false);
        check.no_overlap(dbias, *input, false);
    }
    for (const View *output : {&dx, &dweight, &dbias}) {
        check.no_overlap(*output, weight, false);
    }
    check.no_overlap(dweight, dx, false);
    check.no_overlap(dbias, dx, false);
    check.no_overlap(dbias, dweight, false);
    const RmsNormScalars scalars = norm == HALYARD_NORM_RMS ? rms_norm_scalars(check, "flags", x, eps, flags, p)
                                                            : layer_norm_scalars(check, x, eps);
    return run_call(check, context, &Backend::norm_backward,
                    {norm, x, weight, dy, added, scalars, accumulate != 0, dx, dweight, dbias});
}

}  // namespace halyard

#endif
