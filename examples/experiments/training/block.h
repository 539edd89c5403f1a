// Blocks as torch.nn has them, with LayerNorms and biases, and their parameters; stacks of them on rows of numbers.
#ifndef HALYARD_EXPERIMENTS_TRAINING_BLOCK_H
#define HALYARD_EXPERIMENTS_TRAINING_BLOCK_H

#include <algorithm>
#include <cmath>
#include <halyard/block.hpp>
#include <memory>
#include <optional>

#include "parameters.h"

namespace experiments::training {

struct BlockShape {
    std::int64_t d = 256, heads = 8, ff = 1024;
    bool pre_norm = true;  // x + Sub(N(x)), else N(x + Sub(x))
    bool causal = false;
    halyard::Activation activation = halyard::Activation::relu;
    bool gated = false;
    bool ffn_biases = true;
};

/** y = x W^T + b, W [out, in]. */
struct Linear {
    Linear(std::int64_t in, std::int64_t out, bool has_bias) : weight(out, in), bias(1, has_bias ? out : 0) {}

    void append_to(Parameters &all) {
        all.push_back(&weight);
        if (bias.columns > 0) {
            all.push_back(&bias);
        }
    }
    halyard::Tensor bias_values() { return bias.columns > 0 ? bias.values() : halyard::Tensor(); }
    halyard::Tensor bias_gradients() { return bias.columns > 0 ? bias.gradients() : halyard::Tensor(); }

    Parameter weight, bias;
};

/** The weight and bias of a LayerNorm. */
struct NormParameters {
    explicit NormParameters(std::int64_t d) : weight(1, d), bias(1, d) {
        std::fill(weight.value.begin(), weight.value.end(), 1.0f);
    }

    void append_to(Parameters &all) {
        all.push_back(&weight);
        all.push_back(&bias);
    }

    static constexpr float eps = 1e-5f;
    Parameter weight, bias;
};

/** The parameters of a block, and where the library has them and their gradients. */
class BlockParameters {
public:
    explicit BlockParameters(const BlockShape &shape)
        : qkv(shape.d, 3 * shape.d, true), out(shape.d, shape.d, true), up(shape.d, shape.ff, shape.ffn_biases),
          down(shape.ff, shape.d, shape.ffn_biases), norm1(shape.d), norm2(shape.d), shape_(shape) {
        if (shape.gated) {
            gate.emplace(shape.d, shape.ff, shape.ffn_biases);
        }
    }

    Parameters of_attention() {
        Parameters all;
        qkv.append_to(all);
        out.append_to(all);
        return all;
    }
    Parameters of_network() {
        Parameters all;
        if (gate) {
            gate->append_to(all);
        }
        up.append_to(all);
        down.append_to(all);
        return all;
    }
    Parameters parameters() {
        Parameters all;
        norm1.append_to(all);
        const Parameters attention = of_attention(), network = of_network();
        all.insert(all.end(), attention.begin(), attention.end());
        norm2.append_to(all);
        all.insert(all.end(), network.begin(), network.end());
        return all;
    }

    halyard::BlockConfig config(bool pre_norm) const {
        halyard::BlockConfig config;
        config.hidden_size = shape_.d;
        config.intermediate_size = shape_.ff;
        config.num_attention_heads = shape_.heads;
        config.norm = halyard::Norm::layer;
        config.norm_placement = pre_norm ? halyard::NormPlacement::pre : halyard::NormPlacement::post;
        config.rms_norm_eps = NormParameters::eps;
        config.hidden_act = shape_.activation;
        config.gated_mlp = shape_.gated;
        config.causal = shape_.causal;
        return config;
    }
    halyard::BlockWeights weights() {
        halyard::BlockWeights w;
        w.qkv_proj = qkv.weight.values();
        w.qkv_proj_bias = qkv.bias.values();
        w.o_proj = out.weight.values();
        w.o_proj_bias = out.bias.values();
        if (gate) {
            w.gate_proj = gate->weight.values();
            w.gate_proj_bias = gate->bias_values();
        }
        w.up_proj = up.weight.values();
        w.up_proj_bias = up.bias_values();
        w.down_proj = down.weight.values();
        w.down_proj_bias = down.bias_values();
        w.attention_norm = norm1.weight.values();
        w.attention_norm_bias = norm1.bias.values();
        w.ffn_norm = norm2.weight.values();
        w.ffn_norm_bias = norm2.bias.values();
        return w;
    }
    halyard::BlockGradients gradients() {
        halyard::BlockGradients g;
        g.qkv_proj = qkv.weight.gradients();
        g.qkv_proj_bias = qkv.bias.gradients();
        g.o_proj = out.weight.gradients();
        g.o_proj_bias = out.bias.gradients();
        if (gate) {
            g.gate_proj = gate->weight.gradients();
            g.gate_proj_bias = gate->bias_gradients();
        }
        g.up_proj = up.weight.gradients();
        g.up_proj_bias = up.bias_gradients();
        g.down_proj = down.weight.gradients();
        g.down_proj_bias = down.bias_gradients();
        g.attention_norm = norm1.weight.gradients();
        g.attention_norm_bias = norm1.bias.gradients();
        g.ffn_norm = norm2.weight.gradients();
        g.ffn_norm_bias = norm2.bias.gradients();
        return g;
    }

    Linear qkv, out, up, down;
    std::optional<Linear> gate;
    NormParameters norm1, norm2;

private:
    BlockShape shape_;
};

/** As torch.nn starts: matrices U(-1/sqrt(in), 1/sqrt(in)), and biases of a feed-forward network likewise; that of queries, keys
 *  and values U(-b, b), b = sqrt(6 / (in + out)); biases of attention 0. `uniform` gives numbers in [0, 1). */
template<class Uniform>
void initialize_as_torch(BlockParameters &block, Uniform &uniform) {
    const auto fill = [&](Parameter &parameter, double bound) {
        for (float &each : parameter.value) {
            each = static_cast<float>((2 * uniform() - 1) * bound);
        }
    };
    const auto by_inputs = [&](Linear &linear) {
        const double bound = 1 / std::sqrt(static_cast<double>(linear.weight.columns));
        fill(linear.weight, bound);
        fill(linear.bias, bound);
    };
    fill(block.qkv.weight, std::sqrt(6.0 / static_cast<double>(block.qkv.weight.rows + block.qkv.weight.columns)));
    by_inputs(block.out);
    fill(block.out.bias, 0);
    by_inputs(block.up);
    by_inputs(block.down);
    if (block.gate) {
        by_inputs(*block.gate);
    }
}

/** Blocks and, behind those with norms before their sublayers, one more norm. */
class Stack {
public:
    Stack(const BlockShape &shape, int layers, const halyard_context *context) : shape_(shape), context_(context) {
        grow(layers);
        set_pre_norm(shape.pre_norm);
    }

    /** Adds blocks behind those that are there. Their numbers are to be filled, and then set_pre_norm() called. */
    void grow(int layers) {
        while (static_cast<int>(blocks.size()) < layers) {
            blocks.push_back(std::make_unique<BlockParameters>(shape_));
        }
    }

    /** Numbers of the blocks stay, but the last norm begins anew. */
    void set_pre_norm(bool pre_norm) {
        last_norm.reset();
        if (pre_norm) {
            last_norm.emplace(shape_.d);
        }
        made_.clear();
        for (const auto &block : blocks) {
            made_.emplace_back(block->config(pre_norm), block->weights(), context_);
        }
        saved_.resize(blocks.size());
        inputs_.resize(blocks.size() + 1);
    }

    /** After numbers have changed. */
    void update() {
        for (std::size_t i = 0; i < blocks.size(); i++) {
            made_[i].update(blocks[i]->weights(), context_);
        }
    }

    /** x: [batch, tokens, d]; y has its shape. */
    const std::vector<float> &forward(const std::vector<float> &x, std::int64_t tokens) {
        batch_ = static_cast<std::int64_t>(x.size()) / (tokens * shape_.d);
        tokens_ = tokens;
        inputs_[0] = x;
        for (std::size_t i = 0; i < blocks.size(); i++) {
            inputs_[i + 1].resize(x.size());
            const std::int64_t bytes = made_[i].saved_bytes(batch_, tokens);
            made_[i].forward_saving(rows(inputs_[i]), saved_[i].fit(bytes), bytes, rows(inputs_[i + 1]), context_);
        }
        if (!last_norm) {
            return inputs_.back();
        }
        y_.resize(x.size());
        halyard::layer_norm(rows(inputs_.back()), last_norm->weight.values(), last_norm->bias.values(),
                            NormParameters::eps, rows(y_), context_);
        return y_;
    }

    /** Writes the gradients of all parameters. */
    void backward(const std::vector<float> &dy) {
        std::vector<float> d = dy;
        if (last_norm) {
            halyard::layer_norm_backward(rows(inputs_.back()), last_norm->weight.values(), NormParameters::eps, rows(d),
                                         {}, false, rows(d), last_norm->weight.gradients(), last_norm->bias.gradients(),
                                         context_);
        }
        for (std::size_t i = blocks.size(); i-- > 0;) {
            made_[i].backward(rows(inputs_[i]), saved_[i].data(), made_[i].saved_bytes(batch_, tokens_), rows(d),
                              blocks[i]->gradients(), rows(d), context_);
        }
    }

    Parameters parameters() {
        Parameters all;
        for (const auto &block : blocks) {
            const Parameters some = block->parameters();
            all.insert(all.end(), some.begin(), some.end());
        }
        if (last_norm) {
            last_norm->append_to(all);
        }
        return all;
    }

    std::vector<std::unique_ptr<BlockParameters>> blocks;
    std::optional<NormParameters> last_norm;

private:
    halyard::Tensor rows(std::vector<float> &numbers) const { return {numbers, {batch_, tokens_, shape_.d}}; }

    BlockShape shape_;
    const halyard_context *context_;
    std::vector<halyard::Block> made_;
    std::vector<Saved> saved_;
    std::vector<std::vector<float>> inputs_;  // of every block, and of the last norm
    std::vector<float> y_;
    std::int64_t batch_ = 0, tokens_ = 0;
};

/** Mean of (y - target)^2; dy is its gradient. */
inline double squared_error(const std::vector<float> &y, const std::vector<float> &target, std::vector<float> &dy) {
    const float count = static_cast<float>(y.size());
    double sum = 0;
    dy.resize(y.size());
    for (std::size_t i = 0; i < y.size(); i++) {
        const float difference = y[i] - target[i];
        sum += static_cast<double>(difference) * static_cast<double>(difference);
        dy[i] = 2 * difference / count;
    }
    return sum / static_cast<double>(y.size());
}

}  // namespace experiments::training

#endif
