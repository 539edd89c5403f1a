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
    if (!check.failed() && (layout < HALYARD_GLU_GATE_UP || layout > HALYARD_GLU_INTERLEAVED)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "layout is %d, which is no value of halyard_glu_layout",
                   static_cast<int>(layout));
    }
    if (!check.failed() && xs.width() % 2 != 0) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "x has %lld columns, but must have an even number: gate and up of equal width",
                   static_cast<long long>(xs.width()));
    }
    // x as the two halves of its columns, each with the shape that y must have
    View first = xs;
    first.shape[xs.rank - 1] /= 2;
    first.elements /= 2;
    first.span -= first.empty() ? 0 : first.width();
    View second = first;
    if (!check.failed()) {
        if (ys.rank != xs.rank || ys.width() != first.width()) {
            check.fail(HALYARD_INVALID_ARGUMENT,
                       "y has rank %d and width %lld, but must have the rank of x, %d, and half its width, %lld",
                       ys.rank, static_cast<long long>(ys.width()), xs.rank, static_cast<long long>(first.width()));
        }
        if (!second.empty()) {
            second.data += first.width() * size_of(xs.dtype);
        }
    }
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
