// The backward pass of RMSNorm: the public functions.
#include "api/backward/norm_backward.h"

using namespace halyard;

halyard_status halyard_rms_norm_backward(const halyard_context *context, const DLTensor *x, const DLTensor *weight,
                                         float eps, unsigned flags, const DLTensor *dy, const DLTensor *dresidual_out,
                                         int accumulate, DLTensor *dx, DLTensor *dweight) {
    Checker check("halyard_rms_norm_backward");
    return norm_backward(check, context, HALYARD_NORM_RMS, {x, weight, dy, dresidual_out, dx, dweight, nullptr}, eps,
                         flags, 1.0f, accumulate);
}

halyard_status halyard_partial_rms_norm_backward(const halyard_context *context, const DLTensor *x,
                                                 const DLTensor *weight, float eps, unsigned flags, float p,
                                                 const DLTensor *dy, const DLTensor *dresidual_out, int accumulate,
                                                 DLTensor *dx, DLTensor *dweight) {
    Checker check("halyard_partial_rms_norm_backward");
    return norm_backward(check, context, HALYARD_NORM_RMS, {x, weight, dy, dresidual_out, dx, dweight, nullptr}, eps,
                         flags, p, accumulate);
}
