// The experiments. Each writes its results as CSV files into a directory, from which plot.py makes pictures and a page.
#ifndef HALYARD_EXPERIMENTS_EXPERIMENTS_H
#define HALYARD_EXPERIMENTS_EXPERIMENTS_H

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace experiments {

/** Norm, mean and deviation of the activations behind each block, of several kinds: activation_norm.csv; sums of what
 *  sublayers put out: activation_sums.csv; blocks without norms beside published numbers: activation_drift.csv. */
struct ActivationNormOptions {
    int seeds = 64;
    int layers = 20;
};
void activation_norm(const std::filesystem::path &directory, const ActivationNormOptions &options);

/** Time of RMSNorm and of LayerNorm, in cache and out of it: norm_speed.csv; their operations per row, their parameters,
 *  and what texts say of both: norm_operations.csv, norm_parameters.csv, norm_published.csv. */
struct NormSpeedOptions {
    int rounds = 21;
    std::int64_t tokens = 32 * 1024;  // of the case that is in no cache
    int threads = 0;                  // 0: all
};
void norm_speed(const std::filesystem::path &directory, const NormSpeedOptions &options);

/** Widths and parameter counts of feed-forward networks: ffn_shapes.csv, ffn_rounding.csv, ffn_widths.csv, and beside
 *  those of texts ffn_published.csv; what the gates of a SwiGLU let through: swiglu_maps.csv. */
void ffn_shapes(const std::filesystem::path &directory);

/** Every activation and its derivative on [-4, 4]: activation_curves.csv. */
void activation_curves(const std::filesystem::path &directory);

/** How much of an experiment that trains is run: what takes a minute, five minutes, or all of it. */
enum class Effort { quick, usual, full };

/** Gradient norms by layer before training: training_gradients.csv; losses and gradient norms of the first layer while it goes on:
 *  training_stability.csv. */
struct TrainingOptions {
    Effort effort = Effort::usual;
    int threads = 0;  // 0: all; results do not depend on them
};
void training_stability(const std::filesystem::path &directory, const TrainingOptions &options);

/** Losses of language models whose feed-forward networks have different activations at equal parameters: ablation.csv, and at the end
 *  ablation_final.csv; what they are made of: ablation_models.csv. */
struct AblationOptions {
    TrainingOptions training;
    std::vector<std::string> activations = {"relu", "gelu", "swiglu"};
    int seeds = 0;     // 0: as many as the effort says
    std::string text;  // a file in place of the made-up language
};
std::vector<std::string> ablation_activations();
void ffn_ablation(const std::filesystem::path &directory, const AblationOptions &options);

/** Perplexity of a small trained model in every format of GGUF, and how far its predictions are from those in f32: quantization.csv;
 *  the model in f32: quantization_model/. */
void quantization(const std::filesystem::path &directory, const TrainingOptions &options);

}  // namespace experiments

#endif
