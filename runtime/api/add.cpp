// The sum of two tensors: the public function.
#include "core/backend.h"

using namespace halyard;

halyard_status halyard_add(const halyard_context *context, const DLTensor *a, const DLTensor *b, DLTensor *y) {
    Checker check("halyard_add", Devices::cpu_or_cuda);
    const View as = check.tensor("a", a);
    const View bs = check.tensor("b", b);
    const View ys = check.output("y", y);
    for (const View *other : {&bs, &ys}) {
        check.same_shape(as, *other);
        check.same_dtype(as, *other);
    }
    check.no_overlap(ys, as, true);
    check.no_overlap(ys, bs, true);
    return run_call(check, context, &Backend::elementwise, {kernels::add, as, bs, ys});
}
