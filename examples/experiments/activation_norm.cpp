// Experiment 1: norm of the activations behind each of 20 blocks, of five kinds.
//
// Kinds share the weights of a seed as far as their shapes are the same. Norms' weights are 1 and biases 0, as where
// training starts, so neither is given.
#include "csv.h"
#include "experiments.h"
#include "normal.h"

#include <halyard/block.hpp>

#include <cmath>
#include <utility>
#include <vector>

namespace experiments {
namespace {

constexpr std::int64_t batch = 2, tokens = 8, d = 32, standard_ff = 4 * d, heads = 4, layers = 20;

struct Kind {
    const char *name;
    halyard::Norm norm;
    halyard::NormPlacement placement;
    bool modern;  // rotary embedding, two heads for each of keys and values, SwiGLU; else all heads, ReLU
};

constexpr Kind kinds[] = {
    {"original_2017", halyard::Norm::layer, halyard::NormPlacement::post, false},
    {"pre_ln", halyard::Norm::layer, halyard::NormPlacement::pre, false},
    {"pre_rms", halyard::Norm::rms, halyard::NormPlacement::pre, false},
    {"modern", halyard::Norm::rms, halyard::NormPlacement::pre, true},
    {"post_sublayer", halyard::Norm::rms, halyard::NormPlacement::post_sublayer, true},
};

halyard::BlockConfig config_of(const Kind &kind) {
    halyard::BlockConfig config;
    config.hidden_size = d;
    config.intermediate_size = kind.modern ? halyard::ffn_hidden_size(d, 1) : standard_ff;
    config.num_attention_heads = heads;
    config.num_key_value_heads = kind.modern ? heads / 2 : heads;
    config.norm = kind.norm;
    config.norm_placement = kind.placement;
    config.rms_norm_eps = 1e-5f;
    config.hidden_act = kind.modern ? halyard::Activation::silu : halyard::Activation::relu;
    config.gated_mlp = kind.modern;
    if (kind.modern) {
        config.rope.rope_theta = 10000;
        config.max_position_embeddings = tokens;
    }
    return config;
}

/** Standard normal numbers for one layer's matrices, of the largest shapes; kinds with smaller ones take a part. */
struct Numbers {
    explicit Numbers(Normal &normal) {
        for (std::vector<float> *matrix : {&q, &k, &v, &o}) {
            *matrix = normal.values(d * d, 1);
        }
        for (std::vector<float> *matrix : {&gate, &up, &down}) {
            *matrix = normal.values(d * standard_ff, 1);
        }
    }
    std::vector<float> q, k, v, o, gate, up, down;
};

/** Weights are N(0, variance). */
struct Width {
    const char *variance;
    double (*deviation)(std::int64_t in_features);
};

const Width widths[] = {
    {"0.02^2", [](std::int64_t) { return 0.02; }},
    {"1/fan_in", [](std::int64_t in_features) { return 1 / std::sqrt(static_cast<double>(in_features)); }},
};

halyard::Block make_block(const Kind &kind, const Width &width, const Numbers &numbers) {
    std::vector<std::vector<float>> matrices;
    const auto matrix = [&](const std::vector<float> &from, std::int64_t out, std::int64_t in) {
        std::vector<float> scaled(from.begin(), from.begin() + out * in);
        for (float &value : scaled) {
            value *= static_cast<float>(width.deviation(in));
        }
        matrices.push_back(std::move(scaled));
        return halyard::ConstTensor(matrices.back(), {out, in});
    };
    const halyard::BlockConfig config = config_of(kind);
    const std::int64_t key_values = config.num_key_value_heads * (d / heads), ff = config.intermediate_size;
    halyard::BlockWeights weights;
    weights.q_proj = matrix(numbers.q, d, d);
    weights.k_proj = matrix(numbers.k, key_values, d);
    weights.v_proj = matrix(numbers.v, key_values, d);
    weights.o_proj = matrix(numbers.o, d, d);
    if (config.gated_mlp) {
        weights.gate_proj = matrix(numbers.gate, ff, d);
    }
    weights.up_proj = matrix(numbers.up, ff, d);
    weights.down_proj = matrix(numbers.down, d, ff);
    return {config, weights};
}

/** N(0, 1), each token scaled to RMS 1. */
std::vector<float> input(Normal &normal) {
    std::vector<float> x = normal.values(batch * tokens * d, 1);
    halyard::rms_norm({x, {batch * tokens, d}}, {}, 0, {x, {batch * tokens, d}});
    return x;
}

double norm_of(const std::vector<float> &x) {
    double squares = 0;
    for (const float value : x) {
        squares += static_cast<double>(value) * static_cast<double>(value);
    }
    return std::sqrt(squares);
}

}  // namespace

void activation_norm(const std::filesystem::path &directory, const ActivationNormOptions &options) {
    const double unit_norm = std::sqrt(static_cast<double>(batch * tokens * d));
    Csv csv(directory / "activation_norm.csv", {"weight_variance", "kind", "seed", "layer", "norm", "unit_norm"});
    for (int seed = 0; seed < options.seeds; seed++) {
        Normal normal(static_cast<std::uint64_t>(seed));
        const std::vector<float> x = input(normal);
        std::vector<Numbers> numbers;
        for (std::int64_t layer = 0; layer < layers; layer++) {
            numbers.emplace_back(normal);
        }
        for (const Width &width : widths) {
            for (const Kind &kind : kinds) {
                std::vector<float> stream = x;
                const halyard::Tensor view(stream, {batch, tokens, d});
                csv.line(width.variance, kind.name, seed, 0, norm_of(stream), unit_norm);
                for (std::int64_t layer = 0; layer < layers; layer++) {
                    make_block(kind, width, numbers[static_cast<std::size_t>(layer)]).forward(view, view);
                    csv.line(width.variance, kind.name, seed, layer + 1, norm_of(stream), unit_norm);
                }
            }
        }
    }
    csv.close();
}

}  // namespace experiments
