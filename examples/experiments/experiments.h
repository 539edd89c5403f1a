// The experiments. Each writes its results as CSV files into a directory, from which plot.py makes pictures and a page.
#ifndef HALYARD_EXPERIMENTS_EXPERIMENTS_H
#define HALYARD_EXPERIMENTS_EXPERIMENTS_H

#include <cstdint>
#include <filesystem>

namespace experiments {

/** Norm of the activations behind each of 20 blocks, of five kinds: activation_norm.csv. */
struct ActivationNormOptions {
    int seeds = 64;
};
void activation_norm(const std::filesystem::path &directory, const ActivationNormOptions &options);

/** Time of RMSNorm and of LayerNorm, in cache and out of it: norm_speed.csv; their operations per row:
 *  norm_operations.csv. */
struct NormSpeedOptions {
    int rounds = 21;
    std::int64_t tokens = 32 * 1024;  // of the case that is in no cache
    int threads = 0;                  // 0: all
};
void norm_speed(const std::filesystem::path &directory, const NormSpeedOptions &options);

/** Widths and parameter counts of feed-forward networks: ffn_shapes.csv, ffn_rounding.csv; what the gates of a SwiGLU
 *  let through: swiglu_maps.csv. */
void ffn_shapes(const std::filesystem::path &directory);

/** Every activation and its derivative on [-4, 4]: activation_curves.csv. */
void activation_curves(const std::filesystem::path &directory);

}  // namespace experiments

#endif
