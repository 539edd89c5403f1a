// The backward pass of LayerNorm: the public function.
#include "api/backward/norm_backward.h"

using namespace halyard;

halyard_status halyard_layer_norm_backward(const halyard_context *context, const DLTensor *x, const DLTensor *weight,
                                           float eps, const DLTensor *dy, const DLTensor *dresidual_out, int accumulate,
                                           DLTensor *dx, DLTensor *dweight, DLTensor *dbias) {
    Checker check("halyard_layer_norm_backward");
    return norm_backward(check, context, HALYARD_NORM_LAYER, {x, weight, dy, dresidual_out, dx, dweight, dbias}, eps, 0,
                         1.0f, accumulate);
}
