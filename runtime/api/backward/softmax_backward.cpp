// The backward pass of softmax: the public function.
#include "api/norm.h"

using namespace halyard;

halyard_status halyard_softmax_backward(const halyard_context *context, const DLTensor *y, const DLTensor *dy,
                                        float scale, DLTensor *dx) {
    Checker check("halyard_softmax_backward");
    const View ys = check.tensor("y", y), dys = check.tensor("dy", dy), dxs = check.output("dx", dx);
    check_rows(check, ys, {&dys, &dxs});
    check.no_overlap(dxs, ys, true);
    check.no_overlap(dxs, dys, true);
    check.finite("scale", scale);
    return run_call(check, context, &Backend::softmax_backward, {ys, dys, scale, dxs});
}
