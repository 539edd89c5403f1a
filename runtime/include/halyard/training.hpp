/** @file
 * training.hpp: the C++17 interface of training.h, in the manner of halyard.hpp. */
#ifndef HALYARD_TRAINING_HPP
#define HALYARD_TRAINING_HPP

#include <cstddef>
#include <cstdint>
#include <vector>

#include "halyard.hpp"
#include "training.h"

namespace halyard {

/* ---- Optimizers ------------------------------------------------------------------------------------------------ */

/// The square root of the sum of the squares of all elements of f32 tensors.
inline double gradient_norm(const std::vector<ConstTensor> &gradients, const halyard_context *context = nullptr) {
    std::vector<const DLTensor *> tensors;
    for (const ConstTensor &gradient : gradients) {
        tensors.push_back(gradient.get("gradients"));
    }
    double norm = 0;
    check(halyard_gradient_norm(context, tensors.data(), static_cast<std::int64_t>(tensors.size()), &norm));
    return norm;
}

/// What a step of stochastic gradient descent takes beside its tensors: the arguments of torch.optim.SGD.
struct SgdOptions {
    double lr = 1e-3;           ///< the learning rate
    double momentum = 0;        ///< 0: none, and no buffer
    double weight_decay = 0;    ///< L2, by the gradient
    bool nesterov = false;      ///< Nesterov's momentum
    double gradient_scale = 1;  ///< what the gradient is multiplied by first
};

/// A step of stochastic gradient descent; `momentum_buffer` is Tensor() where there is no momentum, else zeros at first.
inline void sgd_step(const Tensor &parameter, const ConstTensor &gradient, const Tensor &momentum_buffer,
                     const SgdOptions &options, const halyard_context *context = nullptr) {
    halyard_sgd_options c{};
    c.lr = options.lr;
    c.momentum = options.momentum;
    c.weight_decay = options.weight_decay;
    c.nesterov = options.nesterov ? 1 : 0;
    c.gradient_scale = options.gradient_scale;
    check(halyard_sgd_step(context, parameter.get("parameter"), gradient.get("gradient"),
                           momentum_buffer.get("momentum_buffer"), &c));
}

/// What a step of AdamW or Adam takes beside its tensors: the arguments of torch.optim.AdamW.
struct AdamwOptions {
    double lr = 1e-3;            ///< the learning rate
    double beta1 = 0.9;          ///< of the first moment
    double beta2 = 0.999;        ///< of the second moment
    double eps = 1e-8;           ///< added to the root of the second moment
    double weight_decay = 1e-2;  ///< 0: none
    double gradient_scale = 1;   ///< what the gradient is multiplied by first
    bool decoupled = true;       ///< AdamW's weight decay; else Adam's
};

/// Step number `step`, from 1 on, of AdamW or Adam; the moments are zeros at first.
inline void adamw_step(const Tensor &parameter, const ConstTensor &gradient, const Tensor &first_moment,
                       const Tensor &second_moment, std::int64_t step, const AdamwOptions &options = {},
                       const halyard_context *context = nullptr) {
    halyard_adamw_options c{};
    c.lr = options.lr;
    c.beta1 = options.beta1;
    c.beta2 = options.beta2;
    c.eps = options.eps;
    c.weight_decay = options.weight_decay;
    c.gradient_scale = options.gradient_scale;
    c.decoupled = options.decoupled ? 1 : 0;
    check(halyard_adamw_step(context, parameter.get("parameter"), gradient.get("gradient"),
                             first_moment.get("first_moment"), second_moment.get("second_moment"), step, &c));
}

}  // namespace halyard

#endif
