// Softmax: the public function.
#include "api/norm.h"

using namespace halyard;

halyard_status halyard_softmax(const halyard_context *context, const DLTensor *x, float scale, DLTensor *y) {
    Checker check("halyard_softmax", Devices::cpu_or_cuda);
    const View xs = check.tensor("x", x), ys = check.output("y", y);
    check_rows(check, xs, {&ys});
    check.no_overlap(ys, xs, true);
    check.finite("scale", scale);
    return run_call(check, context, &Backend::softmax, {xs, ys, scale});
}
