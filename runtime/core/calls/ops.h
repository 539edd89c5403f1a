// Calls of elementwise operations, norms and softmax, their arguments checked.
#ifndef HALYARD_RUNTIME_CORE_CALLS_OPS_H
#define HALYARD_RUNTIME_CORE_CALLS_OPS_H

#include "core/calls/norm.h"

namespace halyard {

/** The kernel that copies elements and rounds them to a dtype. */
constexpr Kernel cast_kernel(DType dtype) {
    constexpr Kernel to[] = {
#define HALYARD_DTYPE(name) Kernel::cast_to_##name,
#include "kernels/dtypes.inc"
#undef HALYARD_DTYPE
    };
    return to[static_cast<int>(dtype)];
}

/** y = kernel(inputs), all of one shape; an element of y takes `pair` elements of the first input (2 where gate and up are
 *  interleaved). */
struct ElementwiseCall {
    Kernel kernel;
    View inputs[2];
    int input_count;
    View y;
    const float *beta = nullptr;  // null where the kernel takes none
    int pair = 1;
};

/** y = norm(x), or residual_out = x + residual and y = norm(residual_out) where there is a residual. Weight and bias are
 *  empty where there is none. */
struct NormCall {
    halyard_norm norm;
    View x, weight, bias, y;
    RmsNormScalars scalars;  // a LayerNorm has only the eps
    View residual = {}, residual_out = {};
};

/** The kernel of a norm, and its arguments, in `scalars` and the call. */
inline RowOperation row_operation(const NormCall &call, RmsNormScalars &scalars) {
    return call.norm == HALYARD_NORM_RMS ? rms_norm(call.weight, &scalars)
                                         : layer_norm(call.weight, call.bias, &scalars.eps);
}

/** y = softmax(scale x). */
struct SoftmaxCall {
    View x, y;
    float scale;
};

/** 1/sqrt(...) and, for a LayerNorm, the mean of every row: f32, [leading axes of x]. */
struct NormStatisticsCall {
    halyard_norm norm;
    View x, mean, y;  // y: the scale
    RmsNormScalars scalars;
};

}  // namespace halyard

#endif
