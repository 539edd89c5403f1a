// Gradients of activations: the public functions.
#include "api/elementwise.h"

namespace halyard {
namespace {

halyard_status unary_backward(const char *name, KernelOf<arguments::Glu> kernel, const halyard_context *context,
                              const DLTensor *x, const DLTensor *dy, float beta, DLTensor *dx) {
    Checker check(name);
    const View xs = check.tensor("x", x);
    const View dys = check.tensor("dy", dy);
    const View dxs = check.output("dx", dx);
    for (const View *other : {&dys, &dxs}) {
        check.same_shape(xs, *other);
        check.same_dtype(xs, *other);
    }
    check.no_overlap(dxs, xs, true);
    check.no_overlap(dxs, dys, true);
    check.swish_beta("beta", beta);
    return run_call(check, context, &Backend::elementwise, {without_beta(kernel, beta), xs, dys, beta, dxs});
}

}  // namespace
}  // namespace halyard

namespace kernels = halyard::kernels;

#define HALYARD_KERNEL(name)                                                                                           \
    halyard_status halyard_##name##_backward(const halyard_context *context, const DLTensor *x, const DLTensor *dy,    \
                                             DLTensor *dx) {                                                           \
        return halyard::unary_backward("halyard_" #name "_backward", kernels::name##_backward, context, x, dy, 0.0f,   \
                                       dx);                                                                            \
    }
#include "kernels/built_unary_backward.inc"
#undef HALYARD_KERNEL

#define HALYARD_KERNEL(name)                                                                                           \
    halyard_status halyard_##name##_backward(const halyard_context *context, const DLTensor *x, const DLTensor *dy,    \
                                             float beta, DLTensor *dx) {                                               \
        return halyard::unary_backward("halyard_" #name "_backward", kernels::name##_backward, context, x, dy, beta,   \
                                       dx);                                                                            \
    }
#include "kernels/built_unary_beta_backward.inc"
#undef HALYARD_KERNEL
