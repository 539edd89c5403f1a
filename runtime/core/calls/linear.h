// Calls of linear layers and feed-forward networks, their arguments checked.
#ifndef HALYARD_RUNTIME_CORE_CALLS_LINEAR_H
#define HALYARD_RUNTIME_CORE_CALLS_LINEAR_H

#include "core/calls/norm.h"
#include "core/check.h"
#include "core/handles/weights.h"
#include "core/kernel_call.h"

namespace halyard {

/** A checked call of halyard_linear. Views of tensors that were not given are empty. */
struct LinearCall {
    const halyard_weights *weights = nullptr;
    View x, y, residual, bias, bias_up, row_scale, row_mean, sums, sums_up;
    halyard_activation activation = HALYARD_IDENTITY;
    float beta = 0.0f;
    bool rounded = false;  // x is rounded to bf16 before it is multiplied
};

/** A checked call of halyard_linear_backward: all f32, without gaps inside rows. Views of tensors that were not given are empty. */
struct LinearBackwardCall {
    const halyard_weights *weights = nullptr;
    View x, dy, sums, sums_up;
    KernelOf<arguments::Glu> activation = {};  // dz from sums and dy, where activated
    KernelOf<arguments::GluBackward> gated_unit =
        {};  // dgate and dup from sums, sums_up and dy, where weights are gated
    bool activated = false;
    float beta = 0.0f;
    bool in_out = false;      // the layout of the weights' gradients
    bool accumulate = false;  // but for dx
    View dx, dweight, dweight_up, dbias, dbias_up;
    View y;  // an output: of no rows the sums are zeros
};

/** A checked call of halyard_ffn. Views of tensors that were not given are empty. */
struct FfnCall {
    const halyard_weights *up = nullptr, *down = nullptr;
    View x, y, norm_weight, norm_bias, bias, bias_up, bias_down;
    halyard_norm norm = HALYARD_NORM_NONE;
    RmsNormScalars rms = {};
    bool deferred_norm = false;
    halyard_activation activation = HALYARD_IDENTITY;
    float beta = 0.0f;
    bool residual = false;
    View sums, sums_up;
    bool rounded = false;  // rows and hidden values are rounded to bf16 before they are multiplied
};

/** A checked call of halyard_ffn_backward: all f32. What lies between the layers is the backend's: x, dy and dx of both. */
struct FfnBackwardCall {
    FfnCall ffn;  // the operands of the forward call
    View dy;
    LinearBackwardCall up, down;
    KernelOf<arguments::Activation> activation = {};  // what the second layer multiplies, from the sums
    KernelOf<arguments::Glu> gated_unit = {};         // or, of gated weights, from both
    View dx, dnorm_weight, dnorm_bias;
    View y;  // an output: of no rows the sums are zeros
};

}  // namespace halyard

#endif
