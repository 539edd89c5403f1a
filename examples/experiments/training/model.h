// Transformer blocks, stacks and a language model with their gradients (layers.h), and where their training starts.
#ifndef HALYARD_EXPERIMENTS_TRAINING_MODEL_H
#define HALYARD_EXPERIMENTS_TRAINING_MODEL_H

#include <algorithm>
#include <memory>

#include "layers.h"

namespace experiments::training {

struct BlockShape {
    std::int64_t d = 256, heads = 8, ff = 1024;
    bool pre_norm = true;  // x + Sub(N(x)), else N(x + Sub(x))
    bool causal = false;
    Function function = Function::relu;
    bool gated = false;
    bool ffn_biases = true;
};

template<class T>
class Block {
public:
    explicit Block(const BlockShape &shape)
        : attention(shape.d, shape.heads, shape.causal),
          ffn(shape.d, shape.ff, shape.function, shape.gated, shape.ffn_biases), norm1(shape.d), norm2(shape.d),
          pre_norm(shape.pre_norm) {}

    Matrix<T> forward(const Matrix<T> &x, std::int64_t tokens) {
        const auto attend = [&](const Matrix<T> &in) { return attention.forward(in, tokens); };
        const auto feed = [&](const Matrix<T> &in) { return ffn.forward(in); };
        return sublayer(sublayer(x, norm1, attend), norm2, feed);
    }

    Matrix<T> backward(const Matrix<T> &dy) {
        const auto attend = [&](const Matrix<T> &d) { return attention.backward(d); };
        const auto feed = [&](const Matrix<T> &d) { return ffn.backward(d); };
        return sublayer_backward(sublayer_backward(dy, norm2, feed), norm1, attend);
    }

    Parameters<T> parameters() {
        Parameters<T> all;
        norm1.append_to(all);
        attention.append_to(all);
        norm2.append_to(all);
        ffn.append_to(all);
        return all;
    }

    Attention<T> attention;
    Ffn<T> ffn;
    Norm<T> norm1, norm2;
    bool pre_norm;

private:
    template<class Sub>
    Matrix<T> sublayer(const Matrix<T> &x, Norm<T> &norm, const Sub &sub) {
        Matrix<T> y = sub(pre_norm ? norm.forward(x) : x);
        add(y, x);
        return pre_norm ? y : norm.forward(y);
    }

    template<class Sub>
    Matrix<T> sublayer_backward(const Matrix<T> &dy, Norm<T> &norm, const Sub &sub) {
        const Matrix<T> dsum = pre_norm ? dy : norm.backward(dy);
        Matrix<T> dx = sub(dsum);
        if (pre_norm) {
            dx = norm.backward(dx);
        }
        add(dx, dsum);
        return dx;
    }
};

/** Blocks and, behind those with norms before their sublayers, one more norm. */
template<class T>
class Stack {
public:
    Stack(const BlockShape &shape, int layers) : shape_(shape) {
        grow(layers);
        set_pre_norm(shape.pre_norm);
    }

    /** Adds blocks behind those that are there. */
    void grow(int layers) {
        while (static_cast<int>(blocks.size()) < layers) {
            blocks.push_back(std::make_unique<Block<T>>(shape_));
        }
    }

    /** Weights stay, but the last norm begins anew. */
    void set_pre_norm(bool pre_norm) {
        for (const auto &block : blocks) {
            block->pre_norm = pre_norm;
        }
        last_norm.reset();
        if (pre_norm) {
            last_norm.emplace(shape_.d);
        }
    }

    /** x: [batch tokens, d] */
    Matrix<T> forward(Matrix<T> x, std::int64_t tokens) {
        for (const auto &block : blocks) {
            x = block->forward(x, tokens);
        }
        return last_norm ? last_norm->forward(x) : x;
    }

    Matrix<T> backward(const Matrix<T> &dy) {
        Matrix<T> dx = last_norm ? last_norm->backward(dy) : dy;
        for (auto block = blocks.rbegin(); block != blocks.rend(); ++block) {
            dx = (*block)->backward(dx);
        }
        return dx;
    }

    Parameters<T> parameters() {
        Parameters<T> all;
        for (const auto &block : blocks) {
            const Parameters<T> some = block->parameters();
            all.insert(all.end(), some.begin(), some.end());
        }
        if (last_norm) {
            last_norm->append_to(all);
        }
        return all;
    }

    std::vector<std::unique_ptr<Block<T>>> blocks;
    std::optional<Norm<T>> last_norm;

private:
    BlockShape shape_;
};

/** Mean of (y - target)^2; dy is its gradient. */
template<class T>
double squared_error(const Matrix<T> &y, const Matrix<T> &target, Matrix<T> &dy) {
    const T count = static_cast<T>(y.values.size());
    double sum = 0;
    dy = Matrix<T>(y.rows, y.columns);
    for (std::size_t i = 0; i < y.values.size(); i++) {
        const T difference = y.values[i] - target.values[i];
        sum += static_cast<double>(difference) * static_cast<double>(difference);
        dy.values[i] = 2 * difference / count;
    }
    return sum / static_cast<double>(count);
}

/** Mean of -log softmax(logits)[target]; dlogits is its gradient. Neither cancels where the target is nearly certain: with s the
 *  sum of exp(x_i - m) over all but the largest logit m, the loss is (m - x_target) + log1p(s). */
template<class T>
double cross_entropy(const Matrix<T> &logits, const std::vector<int> &targets, Matrix<T> &dlogits) {
    double loss = 0;
    const T count = static_cast<T>(logits.rows);
    dlogits = Matrix<T>(logits.rows, logits.columns);
    for (std::int64_t i = 0; i < logits.rows; i++) {
        const T *x = logits.row(i);
        T *p = dlogits.row(i), others = 0;
        const int target = targets[static_cast<std::size_t>(i)];
        const std::int64_t largest = std::max_element(x, x + logits.columns) - x;
        for (std::int64_t j = 0; j < logits.columns; j++) {
            p[j] = std::exp(x[j] - x[largest]);
            others += j == largest ? 0 : p[j];
        }
        loss += static_cast<double>(x[largest] - x[target]) + std::log1p(static_cast<double>(others));
        for (std::int64_t j = 0; j < logits.columns; j++) {
            p[j] /= (1 + others) * count;
        }
        p[target] = target == largest ? -others / ((1 + others) * count) : p[target] - 1 / count;
    }
    return loss / static_cast<double>(count);
}

/** Embedding of tokens and positions, a causal stack, and the logits of the next token. */
template<class T>
class LanguageModel {
public:
    LanguageModel(const BlockShape &shape, int layers, std::int64_t vocabulary, std::int64_t tokens)
        : token_embedding(vocabulary, shape.d), position_embedding(tokens, shape.d), stack(shape, layers),
          head(shape.d, vocabulary, false) {}

    /** ids: [batch tokens]. The logits. */
    Matrix<T> forward(const std::vector<int> &ids) {
        ids_ = ids;
        const std::int64_t tokens = position_embedding.value.rows, d = token_embedding.value.columns;
        Matrix<T> x(static_cast<std::int64_t>(ids.size()), d);
        for (std::int64_t i = 0; i < x.rows; i++) {
            const T *token = token_embedding.value.row(ids[static_cast<std::size_t>(i)]);
            const T *position = position_embedding.value.row(i % tokens);
            std::transform(token, token + d, position, x.row(i), [](T a, T b) { return a + b; });
        }
        return head.forward(stack.forward(std::move(x), tokens));
    }

    void backward(const Matrix<T> &dlogits) {
        const Matrix<T> dx = stack.backward(head.backward(dlogits));
        for (Parameter<T> *table : {&token_embedding, &position_embedding}) {
            std::fill(table->gradient.values.begin(), table->gradient.values.end(), T{0});
        }
        for (std::int64_t i = 0; i < dx.rows; i++) {
            T *token = token_embedding.gradient.row(ids_[static_cast<std::size_t>(i)]);
            T *position = position_embedding.gradient.row(i % position_embedding.value.rows);
            for (std::int64_t j = 0; j < dx.columns; j++) {
                token[j] += dx.row(i)[j];
                position[j] += dx.row(i)[j];
            }
        }
    }

    Parameters<T> parameters() {
        Parameters<T> all = stack.parameters();
        all.insert(all.begin(), {&token_embedding, &position_embedding});
        head.append_to(all);
        return all;
    }

    Parameter<T> token_embedding, position_embedding;
    Stack<T> stack;
    Linear<T> head;

private:
    std::vector<int> ids_;
};

/** As torch.nn starts: matrices U(-1/sqrt(in), 1/sqrt(in)), and biases of a feed-forward network likewise; that of queries, keys
 *  and values U(-b, b), b = sqrt(6 / (in + out)); biases of attention 0. `uniform` gives numbers in [0, 1). */
template<class T, class Uniform>
void initialize_as_torch(Block<T> &block, Uniform &uniform) {
    const auto fill = [&](Parameter<T> &parameter, double bound) {
        for (T &each : parameter.value.values) {
            each = static_cast<T>((2 * uniform() - 1) * bound);
        }
    };
    const auto by_inputs = [&](Linear<T> &linear) {
        const double bound = 1 / std::sqrt(static_cast<double>(linear.weight.value.columns));
        fill(linear.weight, bound);
        fill(linear.bias, bound);
    };
    const Matrix<T> &qkv = block.attention.qkv.weight.value;
    fill(block.attention.qkv.weight, std::sqrt(6.0 / static_cast<double>(qkv.rows + qkv.columns)));
    by_inputs(block.attention.out);
    fill(block.attention.out.bias, 0);
    by_inputs(block.ffn.up);
    by_inputs(block.ffn.down);
    if (block.ffn.gate) {
        by_inputs(*block.ffn.gate);
    }
}

/** Matrices N(0, deviation^2); vectors, which are norms' weights and biases, stay. `normal` gives numbers of N(0, 1). */
template<class T, class NormalNumbers>
void initialize_normal(const Parameters<T> &parameters, NormalNumbers &normal, double deviation) {
    for (Parameter<T> *parameter : parameters) {
        for (T &each : parameter->value.values) {
            each = parameter->value.rows > 1 ? static_cast<T>(deviation * normal()) : each;
        }
    }
}

template<class T>
double gradient_norm(const Parameters<T> &parameters) {
    double squares = 0;
    for (const Parameter<T> *parameter : parameters) {
        for (const T each : parameter->gradient.values) {
            squares += static_cast<double>(each) * static_cast<double>(each);
        }
    }
    return std::sqrt(squares);
}

}  // namespace experiments::training

#endif
