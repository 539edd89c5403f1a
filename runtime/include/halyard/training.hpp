/** @file
 * training.hpp: the C++17 interface of training.h, in the manner of halyard.hpp. */
#ifndef HALYARD_TRAINING_HPP
#define HALYARD_TRAINING_HPP

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "halyard.hpp"
#include "training.h"

namespace halyard {

/* ---- Losses ---------------------------------------------------------------------------------------------------- */

/// What counts, and by how much.
struct CrossEntropyOptions {
    std::optional<std::int64_t> ignore_index;  ///< the target of rows that do not count
    float gradient_scale = 1;                  ///< of dlogits; 0 counts as 1

    /// As the C functions take them.
    halyard_cross_entropy_options get() const noexcept {
        return {ignore_index.value_or(0), ignore_index.has_value() ? 1 : 0, gradient_scale};
    }
};

/// losses = -log(softmax(logits)[target]) of each row, and dlogits = gradient_scale (softmax(logits) - one_hot(target)), both f32 and
/// accurate however small. targets: int32 or int64, as losses the leading shape of logits. Either output may be left out: Tensor().
/// dlogits may be logits.
inline void cross_entropy(const ConstTensor &logits, const Integers &targets, const CrossEntropyOptions &options,
                          const Tensor &losses, const Tensor &dlogits, const halyard_context *context = nullptr) {
    const halyard_cross_entropy_options c = options.get();
    check(halyard_cross_entropy(context, logits.get("logits"), targets.get("targets"), &c, losses.get("losses"),
                                dlogits.get("dlogits")));
}

/// The mean of the losses that count, summed in float64; NaN if none does.
inline double mean_loss(const ConstTensor &losses, const Integers &targets, const CrossEntropyOptions &options = {}) {
    const halyard_cross_entropy_options c = options.get();
    double mean = 0;
    check(halyard_mean_loss(losses.get("losses"), targets.get("targets"), &c, &mean, nullptr));
    return mean;
}

/* ---- Embeddings ------------------------------------------------------------------------------------------------ */

/// The gradient of an embedding's table, [vocabulary, d]: what is there if it accumulates, else 0, and the rows of dy added in order,
/// each to the row of its id.
inline void embedding_backward(const Integers &input_ids, const ConstTensor &dy, bool accumulate, const Tensor &dtable,
                               const halyard_context *context = nullptr) {
    check(halyard_embedding_backward(context, input_ids.get("input_ids"), dy.get("dy"), accumulate ? 1 : 0,
                                     dtable.get("dtable")));
}

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
