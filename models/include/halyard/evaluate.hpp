/** @file
 * evaluate.hpp: how well a model predicts given tokens, and how far its predictions are from another's, as those of a quantized
 * model from the model it was made of.
 *
 *     const auto model = halyard::Model::load("model-q4_0.gguf"), reference = halyard::Model::load("model");
 *     const halyard::Evaluation result = halyard::evaluate(model, &reference, ids);
 *     // result.perplexity, result.comparison->mean_divergence, ...
 *
 * The measures are those of llama.cpp's tool `perplexity --kl-divergence`: p is the reference's softmax of its logits, q the
 * model's, both in float64, and divergences are in nats.
 */
#ifndef HALYARD_EVALUATE_HPP
#define HALYARD_EVALUATE_HPP

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "halyard/model.hpp"

namespace halyard {

/// How tokens are given to the models.
struct EvaluateOptions {
    const halyard_context *context = nullptr;  ///< for both models
    /// Tokens that are one text: each window begins with an empty cache, and its first token is not predicted. 2 to the models'
    /// positions; 0: `usual_window`, or the positions if these are fewer.
    std::int64_t window = 0;
    /// As in published perplexities of llama.cpp.
    static constexpr std::int64_t usual_window = 512;
    /// Called from time to time with the tokens that are done, and of how many.
    std::function<void(std::int64_t done, std::int64_t total)> progress;
};

/// A mean over predictions, and the standard error of it as if they were independent.
struct Mean {
    double value = 0;  ///< the mean
    double error = 0;  ///< deviation / sqrt(predictions); 0 of a single one
};

/// What one model says beside another.
struct Comparison {
    Mean reference_loss;            ///< -log p of the token that follows
    Mean loss_difference;           ///< -log q + log p of it: log of the ratio of the perplexities
    Mean divergence;                ///< KL(p || q) = sum of p (log p - log q)
    double median_divergence = 0;   ///< over predictions
    double divergence_99 = 0;       ///< that 99 % of the predictions do not exceed
    double largest_divergence = 0;  ///< over predictions
    Mean agreement;                 ///< share of predictions with the same most likely token, the first among equals
};

/// What `evaluate` found.
struct Evaluation {
    std::int64_t predictions = 0;          ///< tokens that were predicted
    Mean loss;                             ///< -log q of the token that follows; perplexity is exp of its value
    std::optional<Comparison> comparison;  ///< none without a reference

    double perplexity() const noexcept;            ///< exp(loss)
    double reference_perplexity() const noexcept;  ///< exp(comparison->reference_loss)
};

/// Predicts each token of `ids` from those before it in its window. `reference`: null, or a model with as many tokens in its
/// vocabulary. Memory beside the models and caches: the logits of 32 tokens of each.
/// Throws `Error` for an encoder, fewer than two ids, ids that are no tokens, vocabularies that differ, and logits that are NaN or
/// +Inf.
Evaluation evaluate(const Model &model, const Model *reference, const std::vector<std::int64_t> &ids,
                    const EvaluateOptions &options = {});

}  // namespace halyard

#endif
