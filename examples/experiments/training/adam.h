// Adam (Kingma and Ba 2015).
#ifndef HALYARD_EXPERIMENTS_TRAINING_ADAM_H
#define HALYARD_EXPERIMENTS_TRAINING_ADAM_H

#include <cmath>

#include "tensors.h"

namespace experiments::training {

template<class T>
class Adam {
public:
    explicit Adam(Parameters<T> parameters) : parameters_(std::move(parameters)), moments_(parameters_.size()) {
        for (std::size_t i = 0; i < moments_.size(); i++) {
            moments_[i].mean = moments_[i].square = std::vector<T>(parameters_[i]->value.values.size());
        }
    }

    void step(double learning_rate) {
        constexpr double beta1 = 0.9, beta2 = 0.999;
        constexpr T eps = static_cast<T>(1e-8);
        steps_++;
        const T rate = static_cast<T>(learning_rate / (1 - std::pow(beta1, steps_)));
        const T scale = static_cast<T>(1 / std::sqrt(1 - std::pow(beta2, steps_)));
        for (std::size_t i = 0; i < moments_.size(); i++) {
            std::vector<T> &m = moments_[i].mean, &v = moments_[i].square, &value = parameters_[i]->value.values;
            const std::vector<T> &gradient = parameters_[i]->gradient.values;
            parallel_ranges(static_cast<std::int64_t>(m.size()), 1 << 14, [&](std::size_t begin, std::size_t end) {
                for (std::size_t j = begin; j < end; j++) {
                    m[j] += static_cast<T>(1 - beta1) * (gradient[j] - m[j]);
                    v[j] += static_cast<T>(1 - beta2) * (gradient[j] * gradient[j] - v[j]);
                    value[j] -= rate * m[j] / (std::sqrt(v[j]) * scale + eps);
                }
            });
        }
    }

private:
    struct Moments {
        std::vector<T> mean, square;
    };

    Parameters<T> parameters_;
    std::vector<Moments> moments_;
    int steps_ = 0;
};

}  // namespace experiments::training

#endif
