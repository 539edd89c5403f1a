/** @file
 * training.hpp: the C++17 interface of training.h, in the manner of halyard.hpp. */
#ifndef HALYARD_TRAINING_HPP
#define HALYARD_TRAINING_HPP

#include <cstdint>
#include <optional>

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

}  // namespace halyard

#endif
