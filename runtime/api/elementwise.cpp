// Activations and their derivatives, gated units, add and cast: the public functions.
#include "core/backend.h"

namespace halyard {
namespace {

// beta = 1, the value in every published model, has kernels of its own: two thirds of the time of the general ones.
template<typename Arguments>
KernelOf<Arguments> without_beta(KernelOf<Arguments> kernel, float beta) {
    if (beta == 1.0f) {
        switch (kernel.kernel) {
        case Kernel::swish:
            return {Kernel::silu};
        case Kernel::swish_derivative:
            return {Kernel::silu_derivative};
        case Kernel::swiglu:
            return {Kernel::swiglu_beta1};
        case Kernel::swiglu_interleaved:
            return {Kernel::swiglu_beta1_interleaved};
        default:
            break;
        }
    }
    return kernel;
}

halyard_status run(Checker &check, const halyard_context *context, const ElementwiseCall &call) {
    return run_call(check, context, &Backend::elementwise, call);
}

halyard_status unary(const char *name, KernelOf<arguments::Activation> kernel, const halyard_context *context,
                     const DLTensor *x, float beta, DLTensor *y) {
    Checker check(name, Devices::cpu_or_cuda);
    const View xs = check.tensor("x", x);
    const View ys = check.output("y", y);
    check.same_shape(xs, ys);
    check.same_dtype(xs, ys);
    check.no_overlap(ys, xs, true);
    check.swish_beta("beta", beta);
    return run(check, context, {without_beta(kernel, beta), xs, beta, ys});
}

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
    return run(check, context, {without_beta(kernel, beta), gates, ups, beta, ys});
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
        return run(check, context, {without_beta(interleaved, beta), xs, beta, ys});
    }
    const bool gate_first = layout == HALYARD_GLU_GATE_UP;
    return run(check, context,
               {without_beta(kernel, beta), gate_first ? first : second, gate_first ? second : first, beta, ys});
}

}  // namespace
}  // namespace halyard

using halyard::Checker;
namespace kernels = halyard::kernels;
using halyard::View;

#define HALYARD_KERNEL(name)                                                                                           \
    halyard_status halyard_##name(const halyard_context *context, const DLTensor *x, DLTensor *y) {                    \
        return halyard::unary("halyard_" #name, kernels::name, context, x, 0.0f, y);                                   \
    }
#include "kernels/unary.inc"
#undef HALYARD_KERNEL

#define HALYARD_KERNEL(name)                                                                                           \
    halyard_status halyard_##name(const halyard_context *context, const DLTensor *x, float beta, DLTensor *y) {        \
        return halyard::unary("halyard_" #name, kernels::name, context, x, beta, y);                                   \
    }
#include "kernels/unary_beta.inc"
#undef HALYARD_KERNEL

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
#include "kernels/gated.inc"
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
#include "kernels/gated_beta.inc"
#undef HALYARD_KERNEL

halyard_status halyard_add(const halyard_context *context, const DLTensor *a, const DLTensor *b, DLTensor *y) {
    Checker check("halyard_add", halyard::Devices::cpu_or_cuda);
    const View as = check.tensor("a", a);
    const View bs = check.tensor("b", b);
    const View ys = check.output("y", y);
    for (const View *other : {&bs, &ys}) {
        check.same_shape(as, *other);
        check.same_dtype(as, *other);
    }
    check.no_overlap(ys, as, true);
    check.no_overlap(ys, bs, true);
    return halyard::run(check, context, {kernels::add, as, bs, ys});
}

halyard_status halyard_cast(const halyard_context *context, const DLTensor *x, DLTensor *y) {
    Checker check("halyard_cast", halyard::Devices::cpu_or_cuda);
    const View xs = check.tensor("x", x);
    const View ys = check.output("y", y);
    check.same_shape(xs, ys);
    check.no_overlap(ys, xs, xs.dtype == ys.dtype);
    return halyard::run(check, context, {xs, ys});
}
