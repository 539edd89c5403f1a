// A tensor in another dtype: the public function.
#include "core/backend.h"

using namespace halyard;

halyard_status halyard_cast(const halyard_context *context, const DLTensor *x, DLTensor *y) {
    Checker check("halyard_cast", Devices::cpu_or_cuda);
    const View xs = check.tensor("x", x);
    const View ys = check.output("y", y);
    check.same_shape(xs, ys);
    check.no_overlap(ys, xs, xs.dtype == ys.dtype);
    return run_call(check, context, &Backend::elementwise, {xs, ys});
}
