// Calls of optimizers, their arguments checked: tensors in f32, numbers rounded to f32 as kernels take them.
#ifndef HALYARD_RUNTIME_CORE_CALLS_OPTIMIZERS_H
#define HALYARD_RUNTIME_CORE_CALLS_OPTIMIZERS_H

#include "core/check.h"

namespace halyard {

/** *norm = sqrt(sum of the squares of all elements). */
struct GradientNormCall {
    const View *gradients;
    int64_t count;
    double *norm;
};

/** A step of generators/sgd.cpp. `buffer` has no data where there is no momentum. */
struct SgdCall {
    const View &y;  // the parameter
    const View &gradient, &buffer;
    float gradient_scale, decay, momentum, lr;
    bool nesterov;
};

/** A step of generators/adamw.cpp. */
struct AdamwCall {
    const View &y;  // the parameter
    const View &gradient, &first_moment, &second_moment;
    float gradient_scale, coupled_decay, decay, rest_of_beta1, beta2, rest_of_beta2, step_size, eps;
};

}  // namespace halyard

#endif
