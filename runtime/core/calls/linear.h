// Calls of linear layers and feed-forward networks, their arguments checked.
#ifndef HALYARD_RUNTIME_CORE_CALLS_LINEAR_H
#define HALYARD_RUNTIME_CORE_CALLS_LINEAR_H

#include "core/calls/norm.h"
#include "core/check.h"
#include "core/handles/weights.h"

namespace halyard {

/** A checked call of halyard_linear. Views of tensors that were not given are empty. */
struct LinearCall {
    const halyard_weights *weights = nullptr;
    View x, y, residual, bias, bias_up, row_scale, row_mean;
    halyard_activation activation = HALYARD_IDENTITY;
    float beta = 0.0f;
    bool rounded = false;  // x is rounded to bf16 before it is multiplied
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
    bool rounded = false;  // rows and hidden values are rounded to bf16 before they are multiplied
};

}  // namespace halyard

#endif
