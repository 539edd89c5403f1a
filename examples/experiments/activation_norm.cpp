// Experiment 1: the activations behind each of many blocks, of several kinds: their norm, mean and deviation.
//
// Kinds share the weights of a seed as far as their shapes are the same. Norms' weights are 1 and biases 0, as where
// training starts, so neither is given.
#include "csv.h"
#include "experiments.h"
#include "normal.h"

#include <halyard/block.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

namespace experiments {
namespace {

constexpr std::int64_t batch = 2, tokens = 8, d = 32, standard_ff = 4 * d;
constexpr float eps = 1e-5f;

struct Kind {
    const char *name;
    halyard::Norm norm;
    halyard::NormPlacement placement;
    bool gated;   // SwiGLU; else ReLU
    bool rotary;  // rotary embedding, and heads that share keys and values by twos
    bool residual = true;
};

constexpr Kind kinds[] = {
    {"original_2017", halyard::Norm::layer, halyard::NormPlacement::post, false, false},
    {"pre_ln", halyard::Norm::layer, halyard::NormPlacement::pre, false, false},
    {"pre_rms", halyard::Norm::rms, halyard::NormPlacement::pre, false, false},
    {"modern", halyard::Norm::rms, halyard::NormPlacement::pre, true, true},
    {"modern_plain", halyard::Norm::rms, halyard::NormPlacement::pre, true, false},
    {"post_sublayer", halyard::Norm::rms, halyard::NormPlacement::post_sublayer, true, true},
    // Two more forms that texts call Post-LN.
    {"post_sublayer_ln", halyard::Norm::layer, halyard::NormPlacement::post_sublayer, false, false},
    {"double_norm", halyard::Norm::layer, halyard::NormPlacement::double_norm, false, false},
    {"no_norm", halyard::Norm::none, halyard::NormPlacement::pre, false, false},
    {"no_norm_no_residual", halyard::Norm::none, halyard::NormPlacement::pre, false, false, false},
};

/** What attention and the input are like. */
struct Form {
    const char *name;
    std::int64_t heads;
    bool causal;
    bool output_projection;  // else the identity
    bool unit_tokens;        // each token of the input is scaled to RMS 1
};

constexpr Form multi_head = {"multi_head", 4, true, true, true};
/** That of notebooks, which shows norms and leaves out what is not about them. */
constexpr Form single_head = {"single_head", 1, false, false, false};

halyard::BlockConfig config_of(const Kind &kind, const Form &form) {
    halyard::BlockConfig config;
    config.hidden_size = d;
    config.intermediate_size = kind.gated ? halyard::ffn_hidden_size(d, 1) : standard_ff;
    config.num_attention_heads = form.heads;
    config.num_key_value_heads = kind.rotary ? form.heads / 2 : form.heads;
    config.norm = kind.norm;
    config.norm_placement = kind.placement;
    config.rms_norm_eps = eps;
    config.hidden_act = kind.gated ? halyard::Activation::silu : halyard::Activation::relu;
    config.gated_mlp = kind.gated;
    config.causal = form.causal;
    if (kind.rotary) {
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

constexpr Width small_weights = {"0.02^2", [](std::int64_t) { return 0.02; }};
constexpr Width fan_in_weights = {
    "1/fan_in", [](std::int64_t in_features) { return 1 / std::sqrt(static_cast<double>(in_features)); }};
constexpr Width large_weights = {"1", [](std::int64_t) { return 1.0; }};

/** One layer's matrices, scaled and of a kind's shapes. */
class Matrices {
public:
    Matrices(const halyard::BlockConfig &config, const Form &form, const Width &width, const Numbers &numbers) {
        const auto matrix = [&](const std::vector<float> &from, std::int64_t out, std::int64_t in) {
            std::vector<float> scaled(from.begin(), from.begin() + out * in);
            for (float &value : scaled) {
                value *= static_cast<float>(width.deviation(in));
            }
            return kept(std::move(scaled), out, in);
        };
        const std::int64_t key_values = config.num_key_value_heads * (d / config.num_attention_heads);
        const std::int64_t ff = config.intermediate_size;
        tensors.q_proj = matrix(numbers.q, d, d);
        tensors.k_proj = matrix(numbers.k, key_values, d);
        tensors.v_proj = matrix(numbers.v, key_values, d);
        tensors.o_proj = form.output_projection ? matrix(numbers.o, d, d) : kept(identity(), d, d);
        if (config.gated_mlp) {
            tensors.gate_proj = matrix(numbers.gate, ff, d);
        }
        tensors.up_proj = matrix(numbers.up, ff, d);
        tensors.down_proj = matrix(numbers.down, d, ff);
    }

    const halyard::BlockWeights &weights() const { return tensors; }

private:
    static std::vector<float> identity() {
        std::vector<float> values(d * d);
        for (std::size_t i = 0; i < d; i++) {
            values[i * d + i] = 1;
        }
        return values;
    }

    halyard::ConstTensor kept(std::vector<float> matrix, std::int64_t out, std::int64_t in) {
        values.push_back(std::move(matrix));
        return halyard::ConstTensor(values.back(), {out, in});
    }

    std::vector<std::vector<float>> values;
    halyard::BlockWeights tensors;
};

/** One layer's attention and feed-forward network, each by itself: what a block adds to its stream. */
class Sublayers {
public:
    Sublayers(const Kind &kind, const Form &form, const halyard::BlockWeights &weights)
        : heads(form.heads), causal(form.causal), residual(kind.residual), norm(kind.norm),
          q(halyard::Weights::pack(weights.q_proj)), k(halyard::Weights::pack(weights.k_proj)),
          v(halyard::Weights::pack(weights.v_proj)), o(halyard::Weights::pack(weights.o_proj)),
          down(halyard::Weights::pack(weights.down_proj)) {
        halyard::PackOptions options;
        if (kind.gated) {
            options.up = weights.up_proj;
        }
        up = halyard::Weights::pack(kind.gated ? weights.gate_proj : weights.up_proj, options);
        ffn.activation = kind.gated ? halyard::Activation::silu : halyard::Activation::relu;
    }

    /** Attn(N(x)) */
    std::vector<float> attention(const std::vector<float> &x) const {
        const auto product = [](const std::vector<float> &of, const halyard::Weights &matrix) {
            std::vector<float> y(of.size());
            halyard::linear({of, {batch * tokens, d}}, matrix, {y, {batch * tokens, d}});
            return y;
        };
        const std::vector<float> normed = normalized(x);
        return product(softmax_attention(product(normed, q), product(normed, k), product(normed, v)), o);
    }

    /** FFN(N(x)) */
    std::vector<float> feed_forward(const std::vector<float> &x) const {
        std::vector<float> y(x.size());
        halyard::ffn({normalized(x), {batch * tokens, d}}, up, down, ffn, {y, {batch * tokens, d}});
        return y;
    }

    /** x becomes what a block without norms makes of it or, without residuals, what its sublayers put out. */
    void pass(std::vector<float> &x) const {
        add(attention(x), x);
        add(feed_forward(x), x);
    }

private:
    void add(const std::vector<float> &sublayer, std::vector<float> &x) const {
        for (std::size_t i = 0; i < x.size(); i++) {
            x[i] = residual ? x[i] + sublayer[i] : sublayer[i];
        }
    }

    /** By its definition. */
    std::vector<float> softmax_attention(const std::vector<float> &queries, const std::vector<float> &keys,
                                         const std::vector<float> &values) const {
        const std::int64_t width = d / heads;
        const float scale = 1 / std::sqrt(static_cast<float>(width));
        const auto at = [&](std::int64_t sequence, std::int64_t token, std::int64_t head) {
            return static_cast<std::size_t>((sequence * tokens + token) * d + head * width);
        };
        std::vector<float> y(queries.size());
        for (std::int64_t i = 0; i < batch * tokens * heads; i++) {
            const std::int64_t sequence = i / (tokens * heads), token = i / heads % tokens, head = i % heads;
            const std::size_t own = at(sequence, token, head);
            std::vector<float> weights(static_cast<std::size_t>(causal ? token + 1 : tokens));
            for (std::size_t key = 0; key < weights.size(); key++) {
                const std::size_t other = at(sequence, static_cast<std::int64_t>(key), head);
                weights[key] = scale * std::inner_product(&queries[own], &queries[own] + width, &keys[other], 0.0f);
            }
            halyard::softmax(weights, weights);
            for (std::size_t key = 0; key < weights.size(); key++) {
                const std::size_t other = at(sequence, static_cast<std::int64_t>(key), head);
                for (std::size_t feature = 0; feature < static_cast<std::size_t>(width); feature++) {
                    y[own + feature] += weights[key] * values[other + feature];
                }
            }
        }
        return y;
    }

    std::vector<float> normalized(const std::vector<float> &x) const {
        std::vector<float> y = x;
        const halyard::Tensor view(y, {batch * tokens, d});
        if (norm == halyard::Norm::layer) {
            halyard::layer_norm(view, {}, {}, eps, view);
        } else if (norm == halyard::Norm::rms) {
            halyard::rms_norm(view, {}, eps, view);
        }
        return y;
    }

    std::int64_t heads;
    bool causal, residual;
    halyard::Norm norm;
    halyard::Weights q, k, v, o, up, down;
    halyard::FfnOptions ffn;
};

double norm_of(const std::vector<float> &x) {
    double squares = 0;
    for (const float value : x) {
        squares += static_cast<double>(value) * static_cast<double>(value);
    }
    return std::sqrt(squares);
}

double mean_of(const std::vector<float> &x) {
    double sum = 0;
    for (const float value : x) {
        sum += static_cast<double>(value);
    }
    return sum / static_cast<double>(x.size());
}

double deviation_of(const std::vector<float> &x) {
    const double mean = mean_of(x);
    double squares = 0;
    for (const float value : x) {
        squares += (static_cast<double>(value) - mean) * (static_cast<double>(value) - mean);
    }
    return std::sqrt(squares / static_cast<double>(x.size()));
}

/** One seed's weights of all layers, and its inputs. */
class Draw {
public:
    Draw(int seed, std::int64_t layer_count) {
        Normal normal(static_cast<std::uint64_t>(seed));
        x = normal.values(batch * tokens * d, 1);
        for (std::int64_t layer = 0; layer < layer_count; layer++) {
            layers.emplace_back(normal);
        }
    }

    /** Calls `observe(layer, stream)` with the input, as layer 0, and behind each block. */
    template<class Observe>
    void run(const Kind &kind, const Form &form, const Width &width, const Observe &observe) const {
        const halyard::BlockConfig config = config_of(kind, form);
        std::vector<float> stream = input(form);
        const halyard::Tensor view(stream, {batch, tokens, d});
        observe(0, stream);
        for (std::size_t layer = 0; layer < layers.size(); layer++) {
            const Matrices matrices(config, form, width, layers[layer]);
            if (kind.norm == halyard::Norm::none) {
                Sublayers(kind, form, matrices.weights()).pass(stream);
            } else {
                halyard::Block(config, matrices.weights()).forward(view, view);
            }
            observe(static_cast<std::int64_t>(layer) + 1, stream);
        }
    }

    std::vector<float> input(const Form &form) const {
        std::vector<float> scaled = x;
        if (form.unit_tokens) {
            const halyard::Tensor view(scaled, {batch * tokens, d});
            halyard::rms_norm(view, {}, 0, view);
        }
        return scaled;
    }

    std::vector<Numbers> layers;

private:
    std::vector<float> x;
};

void write_norms(const std::filesystem::path &directory, const ActivationNormOptions &options) {
    const double unit_norm = std::sqrt(static_cast<double>(batch * tokens * d));
    Csv csv(directory / "activation_norm.csv",
            {"form", "weight_variance", "kind", "seed", "layer", "norm", "mean", "deviation", "unit_norm"});
    const auto run = [&](const Draw &draw, int seed, const Kind &kind, const Form &form, const Width &width) {
        draw.run(kind, form, width, [&](std::int64_t layer, const std::vector<float> &stream) {
            csv.line(form.name, width.variance, kind.name, seed, layer, norm_of(stream), mean_of(stream),
                     deviation_of(stream), unit_norm);
        });
    };
    for (int seed = 0; seed < options.seeds; seed++) {
        const Draw draw(seed, options.layers);
        for (const Kind &kind : kinds) {
            for (const Width &width : {small_weights, fan_in_weights, large_weights}) {
                run(draw, seed, kind, multi_head, width);
            }
            if (!kind.rotary) {
                run(draw, seed, kind, single_head, small_weights);
            }
        }
    }
    csv.close();
}

/** Pre-norm blocks and those without norms have: the input and the sum of what all sublayers before put out, and how far
 *  the stream of the blocks is from it. */
void write_sums(const std::filesystem::path &directory, const Draw &draw) {
    Csv csv(directory / "activation_sums.csv",
            {"form", "weight_variance", "kind", "layer", "sum_norm", "norm", "largest_difference"});
    const auto run = [&](const Kind &kind, const Form &form, const Width &width) {
        std::vector<float> stream = draw.input(form);
        const halyard::Tensor view(stream, {batch, tokens, d});
        std::vector<double> sum(stream.begin(), stream.end());
        for (std::size_t layer = 0; layer < draw.layers.size(); layer++) {
            const halyard::BlockConfig config = config_of(kind, form);
            const Matrices matrices(config, form, width, draw.layers[layer]);
            const Sublayers sublayers(kind, form, matrices.weights());
            const std::vector<float> attended = sublayers.attention(stream);
            std::vector<float> between = stream;
            for (std::size_t i = 0; i < between.size(); i++) {
                between[i] += attended[i];
            }
            const std::vector<float> fed_forward = sublayers.feed_forward(between);
            halyard::Block(config, matrices.weights()).forward(view, view);
            double largest = 0;
            for (std::size_t i = 0; i < sum.size(); i++) {
                sum[i] += static_cast<double>(attended[i]) + static_cast<double>(fed_forward[i]);
                largest = std::max(largest, std::fabs(static_cast<double>(stream[i]) - sum[i]));
            }
            const std::vector<float> rounded(sum.begin(), sum.end());
            csv.line(form.name, width.variance, kind.name, layer + 1, norm_of(rounded), norm_of(stream), largest);
        }
    };
    for (const Kind &kind : kinds) {
        if (kind.placement == halyard::NormPlacement::pre && kind.residual && !kind.rotary) {
            run(kind, multi_head, small_weights);
            run(kind, single_head, small_weights);
            if (kind.norm != halyard::Norm::none) {  // whose scores grow too large for a block otherwise
                run(kind, multi_head, fan_in_weights);
            }
        }
    }
    csv.close();
}

/** A course's table of the drift without norms, for a network it does not name, beside blocks without norms whose
 *  weights keep a vector's length. */
void write_drift(const std::filesystem::path &directory, int seeds) {
    struct Published {
        std::int64_t layer;
        double mean, deviation;
    };
    constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
    constexpr Published published[] = {{1, 0.0, 1.0}, {8, 0.3, 4.2}, {16, 1.7, 18.1}, {32, not_a_number, not_a_number}};
    constexpr std::int64_t last = 32;
    const Kind &kind = *std::find_if(std::begin(kinds), std::end(kinds),
                                     [](const Kind &each) { return each.name == std::string_view("no_norm"); });
    std::vector<double> sizes_of_means(last + 1), deviations(last + 1);
    for (int seed = 0; seed < seeds; seed++) {
        Draw(seed, last).run(kind, multi_head, fan_in_weights, [&](std::int64_t layer, const std::vector<float> &x) {
            const auto i = static_cast<std::size_t>(layer);
            sizes_of_means[i] += std::fabs(mean_of(x)) / seeds;
            deviations[i] += deviation_of(x) / seeds;
        });
    }
    // What one layer multiplies the deviation by, from the published ones of layers 8 and 16.
    const double growth = std::pow(published[2].deviation / published[1].deviation, 1.0 / 8);
    Csv csv(directory / "activation_drift.csv", {"layer", "published_mean", "published_deviation", "mean_size",
                                                 "deviation", "deviation_at_published_growth"});
    for (const Published &row : published) {
        const auto i = static_cast<std::size_t>(row.layer);
        csv.line(row.layer, row.mean, row.deviation, sizes_of_means[i], deviations[i],
                 published[1].deviation * std::pow(growth, static_cast<double>(row.layer - published[1].layer)));
    }
    csv.close();
}

}  // namespace

void activation_norm(const std::filesystem::path &directory, const ActivationNormOptions &options) {
    write_norms(directory, options);
    write_sums(directory, Draw(0, options.layers));
    write_drift(directory, options.seeds);
}

}  // namespace experiments
