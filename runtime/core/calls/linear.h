// Calls of linear layers and feed-forward networks, their arguments checked.
#ifndef HALYARD_RUNTIME_CORE_CALLS_LINEAR_H
#define HALYARD_RUNTIME_CORE_CALLS_LINEAR_H

#include "core/calls/norm.h"
#include "core/check.h"
#include "core/handles/weights.h"

namespace halyard {

/** Views of what was not given are empty. */
struct LinearCall {
    View x, y, residual, bias, bias_up, row_scale, row_mean;
    const halyard_weights *weights;
    halyard_activation activation;
    float beta;
};

/** The same. */
struct FfnCall {
    View x, y, norm_weight, norm_bias, bias, bias_up, bias_down;
    const halyard_weights *up, *down;
    halyard_ffn_options options;
    RmsNormScalars rms = {};
};

}  // namespace halyard

#endif
