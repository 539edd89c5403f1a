// Calls of linear layers and feed-forward networks, their arguments checked.
#ifndef HALYARD_RUNTIME_CORE_CALLS_LINEAR_H
#define HALYARD_RUNTIME_CORE_CALLS_LINEAR_H

#include "core/calls/norm.h"
#include "core/check.h"
#include "core/handles/weights.h"

namespace halyard {

/** Views of what was not given are empty. */
struct LinearCall {
    const halyard_weights *weights = nullptr;
    View x, y, residual, bias, bias_up, row_scale, row_mean;
    halyard_activation activation = HALYARD_IDENTITY;
    float beta = 0.0f;
    bool rounded = false;  // x to bf16
};

/** The same. */
struct FfnCall {
    const halyard_weights *up = nullptr, *down = nullptr;
    View x, y, norm_weight, norm_bias, bias, bias_up, bias_down;
    halyard_norm norm = HALYARD_NORM_NONE;
    RmsNormScalars rms = {};
    bool deferred_norm = false;
    halyard_activation activation = HALYARD_IDENTITY;
    float beta = 0.0f;
    bool residual = false;
    bool rounded = false;  // what is multiplied to bf16
};

}  // namespace halyard

#endif
