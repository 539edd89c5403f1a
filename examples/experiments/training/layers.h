// Layers with their gradients, by hand. Each keeps what its backward pass needs of the last forward one. A backward pass takes
// the gradient of the loss in y, writes those of the parameters and returns that in x.
#ifndef HALYARD_EXPERIMENTS_TRAINING_LAYERS_H
#define HALYARD_EXPERIMENTS_TRAINING_LAYERS_H

#include <cmath>
#include <optional>
#include <utility>

#include "tensors.h"

namespace experiments::training {

/** y = x W^T + b, with W [out, in]. */
template<class T>
class Linear {
public:
    Linear(std::int64_t in, std::int64_t out, bool has_bias) : weight(out, in), bias(1, has_bias ? out : 0) {}

    Matrix<T> forward(Matrix<T> x) {
        x_ = std::move(x);
        Matrix<T> y = product_transposed(x_, weight.value);
        if (bias.value.columns > 0) {
            parallel_ranges(y.rows, 16, [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t i = begin; i < end; i++) {
                    std::transform(y.row(i), y.row(i + 1), bias.value.row(0), y.row(i), std::plus<T>());
                }
            });
        }
        return y;
    }

    Matrix<T> backward(const Matrix<T> &dy) {
        weight.gradient = product(transposed(dy), x_);
        bias.gradient = Matrix<T>(1, bias.value.columns);
        parallel_ranges(bias.value.columns, 128, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = 0; i < dy.rows; i++) {
                for (std::int64_t j = begin; j < end; j++) {
                    bias.gradient.row(0)[j] += dy.row(i)[j];
                }
            }
        });
        return product(dy, weight.value);
    }

    void append_to(Parameters<T> &all) {
        all.push_back(&weight);
        if (bias.value.columns > 0) {
            all.push_back(&bias);
        }
    }

    Parameter<T> weight, bias;

private:
    Matrix<T> x_;
};

/** LayerNorm (Ba et al. 2016): y = w n + b, n = (x - mean) / sqrt(variance + eps). */
template<class T>
class Norm {
public:
    explicit Norm(std::int64_t d) : weight(1, d), bias(1, d) {
        for (T &each : weight.value.values) {
            each = 1;
        }
    }

    Matrix<T> forward(const Matrix<T> &x) {
        const T d = static_cast<T>(x.columns);
        normalized_ = Matrix<T>(x.rows, x.columns);
        scale_.resize(static_cast<std::size_t>(x.rows));
        Matrix<T> y(x.rows, x.columns);
        parallel_for(x.rows, [&](std::int64_t i) {
            T sum = 0, squares = 0;
            for (std::int64_t j = 0; j < x.columns; j++) {
                sum += x.row(i)[j];
            }
            T *n = normalized_.row(i);
            for (std::int64_t j = 0; j < x.columns; j++) {
                n[j] = x.row(i)[j] - sum / d;
                squares += n[j] * n[j];
            }
            const T scale = scale_[static_cast<std::size_t>(i)] = 1 / std::sqrt(squares / d + static_cast<T>(1e-5));
            for (std::int64_t j = 0; j < x.columns; j++) {
                n[j] *= scale;
                y.row(i)[j] = n[j] * weight.value.row(0)[j] + bias.value.row(0)[j];
            }
        });
        return y;
    }

    /** dx = scale (g - mean(g) - n mean(g n)), g = w dy. */
    Matrix<T> backward(const Matrix<T> &dy) {
        const T d = static_cast<T>(dy.columns);
        weight.gradient = bias.gradient = Matrix<T>(1, dy.columns);
        Matrix<T> dx(dy.rows, dy.columns);
        parallel_ranges(dy.columns, 64, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = 0; i < dy.rows; i++) {
                for (std::int64_t j = begin; j < end; j++) {
                    weight.gradient.row(0)[j] += dy.row(i)[j] * normalized_.row(i)[j];
                    bias.gradient.row(0)[j] += dy.row(i)[j];
                }
            }
        });
        parallel_for(dy.rows, [&](std::int64_t i) {
            const T *n = normalized_.row(i);
            T *g = dx.row(i);
            T sum = 0, along = 0;
            for (std::int64_t j = 0; j < dy.columns; j++) {
                g[j] = dy.row(i)[j] * weight.value.row(0)[j];
                sum += g[j];
                along += g[j] * n[j];
            }
            for (std::int64_t j = 0; j < dy.columns; j++) {
                g[j] = scale_[static_cast<std::size_t>(i)] * (g[j] - sum / d - n[j] * (along / d));
            }
        });
        return dx;
    }

    void append_to(Parameters<T> &all) {
        all.push_back(&weight);
        all.push_back(&bias);
    }

    Parameter<T> weight, bias;

private:
    Matrix<T> normalized_;
    std::vector<T> scale_;
};

/** softmax(Q K^T / sqrt(d_head)) V of each head, as torch.nn.MultiheadAttention has it: Q, K and V by one matrix, with biases. */
template<class T>
class Attention {
public:
    Attention(std::int64_t d, std::int64_t heads, bool causal)
        : qkv(d, 3 * d, true), out(d, d, true), heads_(heads), causal_(causal) {}

    /** x: [batch tokens, d] */
    Matrix<T> forward(const Matrix<T> &x, std::int64_t tokens) {
        tokens_ = tokens;
        qkv_ = qkv.forward(x);
        probabilities_.resize(static_cast<std::size_t>(x.rows / tokens * heads_));
        Matrix<T> y(x.rows, x.columns);
        for_each_head(x.rows, [&](std::int64_t head, const Head &at) {
            const Matrix<T> keys = columns_of(at, 1), values = rows_of(at, 2);
            Matrix<T> &p = probabilities_[static_cast<std::size_t>(head)] = Matrix<T>(tokens, tokens);
            for (std::int64_t i = 0; i < tokens; i++) {
                sum_of_rows(qkv_.row(at.row + i) + at.column, keys, keys.rows, p.row(i));
                softmax(p.row(i), seen_by(i));
                sum_of_rows(p.row(i), values, seen_by(i), y.row(at.row + i) + at.column);
            }
        });
        return out.forward(std::move(y));
    }

    Matrix<T> backward(const Matrix<T> &dout) {
        const Matrix<T> dy = out.backward(dout);
        Matrix<T> dqkv(dy.rows, 3 * dy.columns);
        for_each_head(dy.rows, [&](std::int64_t head, const Head &at) {
            const Matrix<T> queries = rows_of(at, 0), keys = rows_of(at, 1), values = columns_of(at, 2);
            const Matrix<T> &p = probabilities_[static_cast<std::size_t>(head)];
            Matrix<T> dscores(tokens_, tokens_), dys(tokens_, d_head());
            for (std::int64_t i = 0; i < tokens_; i++) {
                std::copy_n(dy.row(at.row + i) + at.column, d_head(), dys.row(i));
                T *ds = dscores.row(i), along = 0;
                sum_of_rows(dys.row(i), values, values.rows, ds);  // in p
                for (std::int64_t j = 0; j < tokens_; j++) {
                    along += p.row(i)[j] * ds[j];
                }
                for (std::int64_t j = 0; j < tokens_; j++) {
                    ds[j] = p.row(i)[j] * (ds[j] - along) * scale();
                }
                sum_of_rows(ds, keys, tokens_, dqkv.row(at.row + i) + at.column);
            }
            const Matrix<T> to_keys = transposed(dscores), to_values = transposed(p);
            for (std::int64_t j = 0; j < tokens_; j++) {
                T *to = dqkv.row(at.row + j) + at.column;
                sum_of_rows(to_keys.row(j), queries, tokens_, to + dy.columns);
                sum_of_rows(to_values.row(j), dys, tokens_, to + 2 * dy.columns);
            }
        });
        return qkv.backward(dqkv);
    }

    void append_to(Parameters<T> &all) {
        qkv.append_to(all);
        out.append_to(all);
    }

    Linear<T> qkv, out;

private:
    struct Head {
        std::int64_t row, column;  // where its tokens and features begin
    };

    std::int64_t d_head() const { return out.weight.value.columns / heads_; }
    T scale() const { return 1 / std::sqrt(static_cast<T>(d_head())); }
    std::int64_t seen_by(std::int64_t query) const { return causal_ ? query + 1 : tokens_; }

    template<class Work>
    void for_each_head(std::int64_t rows, const Work &work) const {
        parallel_for(rows / tokens_ * heads_, [&](std::int64_t i) {
            work(i, Head{i / heads_ * tokens_, i % heads_ * d_head()});
        });
    }

    /** A head's queries (0), keys (1) or values (2), [tokens, d_head]. */
    Matrix<T> rows_of(const Head &at, std::int64_t part) const {
        Matrix<T> rows(tokens_, d_head());
        for (std::int64_t i = 0; i < tokens_; i++) {
            std::copy_n(qkv_.row(at.row + i) + part * qkv_.columns / 3 + at.column, d_head(), rows.row(i));
        }
        return rows;
    }
    /** [d_head, tokens]: by rows of it sums run along tokens, which a compiler vectorizes. */
    Matrix<T> columns_of(const Head &at, std::int64_t part) const { return transposed(rows_of(at, part)); }

    /** to += sum over k < count of factors[k] rows[k]. Four rows at a time: `to` is read and written a fourth as often. */
    static void sum_of_rows(const T *factors, const Matrix<T> &rows, std::int64_t count, T *to) {
        const std::int64_t d = rows.columns;
        std::int64_t k = 0;
        for (; k + 4 <= count; k += 4) {
            const T a = factors[k], b = factors[k + 1], c = factors[k + 2], e = factors[k + 3];
            const T *row = rows.row(k);
            for (std::int64_t j = 0; j < d; j++) {
                to[j] += (a * row[j] + b * row[d + j]) + (c * row[2 * d + j] + e * row[3 * d + j]);
            }
        }
        for (; k < count; k++) {
            for (std::int64_t j = 0; j < d; j++) {
                to[j] += factors[k] * rows.row(k)[j];
            }
        }
    }

    /** Normalizes the first `count` scores of a row; the rest become zero. */
    void softmax(T *row, std::int64_t count) const {
        T most = row[0], sum = 0;
        for (std::int64_t j = 1; j < count; j++) {
            most = std::max(most, row[j]);
        }
        for (std::int64_t j = 0; j < count; j++) {
            row[j] = std::exp((row[j] - most) * scale());
            sum += row[j];
        }
        for (std::int64_t j = 0; j < tokens_; j++) {
            row[j] = j < count ? row[j] / sum : 0;
        }
    }

    std::int64_t heads_, tokens_ = 0;
    bool causal_;
    Matrix<T> qkv_;
    std::vector<Matrix<T>> probabilities_;  // of each head
};

/** f(x W_up^T) W_down^T, or with a gate (f(x W_gate^T) * (x W_up^T)) W_down^T. */
template<class T>
class Ffn {
public:
    Ffn(std::int64_t d, std::int64_t width, Function function, bool gated, bool has_biases)
        : up(d, width, has_biases), down(width, d, has_biases), function_(function) {
        if (gated) {
            gate.emplace(d, width, has_biases);
        }
    }

    Matrix<T> forward(const Matrix<T> &x) {
        up_ = up.forward(x);
        apply(function_, gate ? gate->forward(x) : up_, active_, slope_);
        Matrix<T> hidden = active_;
        if (gate) {
            multiply(hidden, up_);
        }
        return down.forward(std::move(hidden));
    }

    Matrix<T> backward(const Matrix<T> &dy) {
        Matrix<T> dhidden = down.backward(dy);
        if (!gate) {
            multiply(dhidden, slope_);
            return up.backward(dhidden);
        }
        Matrix<T> dgate = dhidden;
        multiply(dgate, up_);
        multiply(dgate, slope_);
        multiply(dhidden, active_);
        Matrix<T> dx = up.backward(dhidden);
        add(dx, gate->backward(dgate));
        return dx;
    }

    /** f(...) of the last forward pass. */
    const Matrix<T> &active() const { return active_; }

    void append_to(Parameters<T> &all) {
        if (gate) {
            gate->append_to(all);
        }
        up.append_to(all);
        down.append_to(all);
    }

    Linear<T> up, down;
    std::optional<Linear<T>> gate;

private:
    Function function_;
    Matrix<T> up_, active_, slope_;
};

}  // namespace experiments::training

#endif
