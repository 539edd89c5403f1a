// Activations and their derivatives: the public functions.
#include "api/elementwise.h"

namespace halyard {
namespace {

halyard_status unary(const char *name, KernelOf<arguments::Activation> kernel, const halyard_context *context,
                     const DLTensor *x, float beta, DLTensor *y) {
    Checker check(name, Devices::cpu_or_cuda);
    const View xs = check.tensor("x", x);
    const View ys = check.output("y", y);
    check.same_shape(xs, ys);
    check.same_dtype(xs, ys);
    check.no_overlap(ys, xs, true);
    check.swish_beta("beta", beta);
    return run_call(check, context, &Backend::elementwise, {without_beta(kernel, beta), xs, beta, ys});
}

}  // namespace
}  // namespace halyard

namespace kernels = halyard::kernels;

#define HALYARD_KERNEL(name)                                                                                           \
    halyard_status halyard_##name(const halyard_context *context, const DLTensor *x, DLTensor *y) {                    \
        return halyard::unary("halyard_" #name, kernels::name, context, x, 0.0f, y);                                   \
    }
#include "kernels/built_unary.inc"
#undef HALYARD_KERNEL

#define HALYARD_KERNEL(name)                                                                                           \
    halyard_status halyard_##name(const halyard_context *context, const DLTensor *x, float beta, DLTensor *y) {        \
        return halyard::unary("halyard_" #name, kernels::name, context, x, beta, y);                                   \
    }
#include "kernels/built_unary_beta.inc"
#undef HALYARD_KERNEL
