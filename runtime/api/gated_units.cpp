// Gated units: the public functions.
#include "api/elementwise.h"

namespace halyard {
namespace {

halyard_status gated(const char *name, KernelOf<arguments::Glu> kernel, const halyard_context *context,
                     const DLTensor *gate, const DLTensor *up, float beta, DLTensor *y) {
    Checker check(name, Devices::cpu_or_cuda);
    const View gates = check.tensor("gate", gate);
    const View ups = check.tensor("up", up);
    const View ys = check.output("y", y);
    for (const View *other : {&ups, &ys}) {
        check.same_shape(gates, *other);
        check.same_dtype(gates, *other);
    }
    check.no_overlap(ys, gates, true);
    check.no_overlap(ys, ups, true);
    check.swish_beta("beta", beta);
    return run_call(check, context, &Backend::elementwise, {without_beta(kernel, beta), gates, ups, beta, ys});
}

halyard_status gated_packed(const char *name, KernelOf<arguments::Glu> kernel,
                            KernelOf<arguments::GluInterleaved> interleaved, const halyard_context *context,
                            const DLTensor *x, halyard_glu_layout layout, float beta, DLTensor *y) {
    Checker check(name, Devices::cpu_or_cuda);
    const View xs = check.tensor("x", x);
    const View ys = check.output("y", y);
    check_glu_layout(check, layout);
    check_half_width(check, xs, ys);
    // each with the shape that y must have
    const View first = half_of(xs, 0), second = half_of(xs, 1);
    check.same_shape(first, ys);
    check.same_dtype(xs, ys);
    if (layout == HALYARD_GLU_INTERLEAVED) {
        check.no_overlap(ys, xs, false);
    } else {
        check.no_overlap(ys, first, true);
        check.no_overlap(ys, second, true);
    }
    check.swish_beta("beta", beta);
    if (layout == HALYARD_GLU_INTERLEAVED) {
        return run_call(check, context, &Backend::elementwise, {without_beta(interleaved, beta), xs, beta, ys});
    }
    const bool gate_first = layout == HALYARD_GLU_GATE_UP;
    return run_call(check, context, &Backend::elementwise,
                    {without_beta(kernel, beta), gate_first ? first : second, gate_first ? second : first, beta, ys});
}

}  // namespace
}  // namespace halyard

namespace kernels = halyard::kernels;

#define HALYARD_KERNEL(name)                                                                                           \
    halyard_status halyard_##name(const halyard_context *context, const DLTensor *gate, const DLTensor *up,            \
                                  DLTensor *y) {                                                                       \
        return halyard::gated("halyard_" #name, kernels::name, context, gate, up, 0.0f, y);                            \
    }                                                                                                                  \
    halyard_status halyard_##name##_packed(const halyard_context *context, const DLTensor *x,                          \
                                           halyard_glu_layout layout, DLTensor *y) {                                   \
        return halyard::gated_packed("halyard_" #name "_packed", kernels::name, kernels::name##_interleaved, context,  \
                                     x, layout, 0.0f, y);                                                              \
    }
#include "kernels/built_gated.inc"
#undef HALYARD_KERNEL

#define HALYARD_KERNEL(name)                                                                                           \
    halyard_status halyard_##name(const halyard_context *context, const DLTensor *gate, const DLTensor *up,            \
                                  float beta, DLTensor *y) {                                                           \
        return halyard::gated("halyard_" #name, kernels::name, context, gate, up, beta, y);                            \
    }                                                                                                                  \
    halyard_status halyard_##name##_packed(const halyard_context *context, const DLTensor *x,                          \
                                           halyard_glu_layout layout, float beta, DLTensor *y) {                       \
        return halyard::gated_packed("halyard_" #name "_packed", kernels::name, kernels::name##_interleaved, context,  \
                                     x, layout, beta, y);                                                              \
    }
#include "kernels/built_gated_beta.inc"
#undef HALYARD_KERNEL
