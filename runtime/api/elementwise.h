// What activations and gated units share.
#ifndef HALYARD_RUNTIME_API_ELEMENTWISE_H
#define HALYARD_RUNTIME_API_ELEMENTWISE_H

#include "core/backend.h"

namespace halyard {

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
        case Kernel::swish_backward:
            return {Kernel::silu_backward};
        case Kernel::swiglu_backward:
            return {Kernel::swiglu_beta1_backward};
        case Kernel::swiglu_interleaved_backward:
            return {Kernel::swiglu_beta1_interleaved_backward};
        default:
            break;
        }
    }
    return kernel;
}

inline void check_glu_layout(Checker &check, halyard_glu_layout layout) {
    if (!check.failed() && (layout < HALYARD_GLU_GATE_UP || layout > HALYARD_GLU_INTERLEAVED)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "layout is %d, which is no value of halyard_glu_layout",
                   static_cast<int>(layout));
    }
}

/** Fails unless x has gate and up of equal width, and y its shape but for half the width. */
inline void check_half_width(Checker &check, const View &x, const View &y) {
    if (!check.failed() && x.width() % 2 != 0) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "x has %lld columns, but must have an even number: gate and up of equal width",
                   static_cast<long long>(x.width()));
    }
    if (!check.failed() && (y.rank != x.rank || y.width() != x.width() / 2)) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "%s has rank %d and width %lld, but must have the rank of x, %d, and half its width, %lld", y.name,
                   y.rank, static_cast<long long>(y.width()), x.rank, static_cast<long long>(x.width() / 2));
    }
}

/** One of the halves of a tensor's columns. */
inline View half_of(const View &x, int half) {
    View part = x;
    part.shape[x.rank - 1] /= 2;
    part.elements /= 2;
    part.span -= part.empty() ? 0 : part.width();
    if (!part.empty()) {
        part.data += half * part.width() * size_of(x.dtype);
    }
    return part;
}

}  // namespace halyard

#endif
