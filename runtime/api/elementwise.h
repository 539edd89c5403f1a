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
        default:
            break;
        }
    }
    return kernel;
}

}  // namespace halyard

#endif
