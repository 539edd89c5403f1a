// Gradients of gated units: the public functions.
#include "api/elementwise.h"

namespace halyard {
namespace {

halyard_status gated_backward(const char *name, KernelOf<arguments::GluBackward> kernel, const halyard_context *context,
                              const DLTensor *gate, const DLTensor *up, const DLTensor *dy, float beta, DLTensor *dgate,
                              DLTensor *dup) {
    Checker check(name);
    const View gates = check.tensor("gate", gate);
    const View ups = check.tensor("up", up);
    const View dys = check.tensor("dy", dy);
    const View dgates = check.output("dgate", dgate);
    const View dups = check.output("dup", dup);
    for (const View *other : {&ups, &dys, &dgates, &dups}) {
        check.same_shape(gates, *other);
        check.same_dtype(gates, *other);
    }
    for (const View *output : {&dgates, &dups}) {
        for (const View *input : {&gates, &ups, &dys}) {
            check.no_overlap(*output, *input, true);
        }
    }
    check.no_overlap(dups, dgates, false);
    check.swish_beta("beta", beta);
    return run_call(check, context, &Backend::elementwise,
                    {without_beta(kernel, beta), gates, ups, dys, beta, dgates, dups});
}

halyard_status gated_packed_backward(const char *name, KernelOf<arguments::GluBackward> kernel,
                                     KernelOf<arguments::GluInterleavedBackward> interleaved,
                                     const halyard_context *context, const DLTensor *x, halyard_glu_layout layout,
                                     const DLTensor *dy, float beta, DLTensor *dx) {
    Checker check(name);
    const View xs = check.tensor("x", x);
    const View dys = check.tensor("dy", dy);
    const View dxs = check.output("dx", dx);
    check_glu_layout(check, layout);
    check_half_width(check, xs, dys);
    check.same_shape(xs, dxs);
    check.same_dtype(xs, dxs);
    check.same_shape(half_of(xs, 0), dys);
    check.same_dtype(xs, dys);
    check.no_overlap(dxs, xs, true);
    check.no_overlap(dxs, dys, false);
    check.swish_beta("beta", beta);
    if (layout == HALYARD_GLU_INTERLEAVED) {
        return run_call(check, context, &Backend::elementwise, {without_beta(interleaved, beta), xs, dys, beta, dxs});
    }
    const int gate = layout == HALYARD_GLU_GATE_UP ? 0 : 1;
    return run_call(check, context, &Backend::elementwise,
                    {without_beta(kernel, beta), half_of(xs, gate), half_of(xs, 1 - gate), dys, beta,
                     half_of(dxs, gate), half_of(dxs, 1 - gate)});
}

}  // namespace
}  // namespace halyard

namespace kernels = halyard::kernels;

#define HALYARD_KERNEL(name)                                                                                           \
    halyard_status halyard_##name##_backward(const halyard_context *context, const DLTensor *gate, const DLTensor *up, \
                                             const DLTensor *dy, DLTensor *dgate, DLTensor *dup) {                     \
        return halyard::gated_backward("halyard_" #name "_backward", kernels::name##_backward, context, gate, up, dy,  \
                                       0.0f, dgate, dup);                                                              \
    }                                                                                                                  \
    halyard_status halyard_##name##_packed_backward(const halyard_context *context, const DLTensor *x,                 \
                                                    halyard_glu_layout layout, const DLTensor *dy, DLTensor *dx) {     \
        return halyard::gated_packed_backward("halyard_" #name "_packed_backward", kernels::name##_backward,           \
                                              kernels::name##_interleaved_backward, context, x, layout, dy, 0.0f, dx); \
    }
#include "kernels/built_gated_backward.inc"
#undef HALYARD_KERNEL

#define HALYARD_KERNEL(name)                                                                                           \
    halyard_status halyard_##name##_backward(const halyard_context *context, const DLTensor *gate, const DLTensor *up, \
                                             const DLTensor *dy, float beta, DLTensor *dgate, DLTensor *dup) {         \
        return halyard::gated_backward("halyard_" #name "_backward", kernels::name##_backward, context, gate, up, dy,  \
                                       beta, dgate, dup);                                                              \
    }                                                                                                                  \
    halyard_status halyard_##name##_packed_backward(const halyard_context *context, const DLTensor *x,                 \
                                                    halyard_glu_layout layout, const DLTensor *dy, float beta,         \
                                                    DLTensor *dx) {                                                    \
        return halyard::gated_packed_backward("halyard_" #name "_packed_backward", kernels::name##_backward,           \
                                              kernels::name##_interleaved_backward, context, x, layout, dy, beta, dx); \
    }
#include "kernels/built_gated_beta_backward.inc"
#undef HALYARD_KERNEL
