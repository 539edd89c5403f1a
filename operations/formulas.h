// What operations compute, as templates of the number: of double for the references, of Dual for the slopes that their gradients must
// be.
#ifndef HALYARD_OPERATIONS_FORMULAS_H
#define HALYARD_OPERATIONS_FORMULAS_H

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace halyard::operations::formulas {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double inverse_root_two = 0.707106781186547524400844362104849;  // 1 / sqrt(2)
constexpr double root_two_over_pi = 0.797884560802865355879892119868764;  // sqrt(2 / pi)
constexpr double gelu_tanh_cubic = 0.044715;
constexpr double gelu_sigmoid_slope = 1.702;

// ---- activations; at +-Inf their limits ----

template<class Number>
Number relu(const Number &x) {
    return x < 0 ? Number(0.0) : x;
}

template<class Number>
Number relu2(const Number &x) {
    return relu(x) * relu(x);
}

template<class Number>
Number sigmoid(const Number &x) {
    using std::exp;
    return 1.0 / (1.0 + exp(-x));
}

template<class Number>
Number gelu(const Number &x) {
    using std::erfc;
    return x == -infinity ? Number(-0.0) : 0.5 * x * erfc(-x * inverse_root_two);
}

template<class Number>
Number gelu_tanh(const Number &x) {
    // (1 + tanh(u)) / 2 = sigmoid(2 u) keeps the tail.
    return x == -infinity ? Number(-0.0) : x * sigmoid(2 * root_two_over_pi * (x + gelu_tanh_cubic * x * x * x));
}

template<class Number>
Number swish(const Number &x, double beta) {
    if (beta == 0) {
        return x / 2;
    }
    const Number t = beta * x;
    return t == -infinity ? Number(x < 0 ? -0.0 : 0.0) : x * sigmoid(t);
}

// ---- norms ----

/** The mean of a row, its variance, and 1 / sqrt(variance + eps), 0 for a row without deviation and eps = 0. */
template<class Number>
struct Moments {
    Number mean, variance, scale;
};

template<class Number>
Moments<Number> layer_moments(const std::vector<Number> &x, double eps) {
    using std::sqrt;
    const auto width = static_cast<double>(x.size());
    Number sum = 0, squares = 0;
    for (const Number &value : x) {
        sum = sum + value;
    }
    const Number mean = sum / width;
    for (const Number &value : x) {
        squares = squares + (value - mean) * (value - mean);
    }
    const Number variance = squares / width, deviation = sqrt(variance + eps);
    return {mean, variance, deviation == 0 ? Number(0.0) : 1.0 / deviation};
}

/** The mean square of a row's first features and 1 / sqrt(mean square + eps), or 1 / (sqrt(mean square) + eps); 0 for zeros and eps = 0. */
template<class Number>
struct RootMeanSquare {
    Number mean_square, scale;
};

template<class Number>
RootMeanSquare<Number> root_mean_square(const std::vector<Number> &x, std::size_t counted, double eps,
                                        bool eps_outside_root) {
    using std::sqrt;
    Number squares = 0;
    for (std::size_t i = 0; i < counted; i++) {
        squares = squares + x[i] * x[i];
    }
    const Number mean_square = squares / static_cast<double>(counted);
    const Number root = eps_outside_root ? sqrt(mean_square) + eps : sqrt(mean_square + eps);
    return {mean_square, root == 0 ? Number(0.0) : 1.0 / root};
}

// ---- softmax and losses ----

/** exp(scale x - m), m being the largest scale x. */
template<class Number>
std::vector<Number> exponentials(const std::vector<Number> &x, double scale) {
    using std::exp;
    Number largest = -infinity;
    for (const Number &value : x) {
        largest = largest < scale * value ? scale * value : largest;
    }
    std::vector<Number> terms;
    for (const Number &value : x) {
        terms.push_back(exp(scale * value - largest));
    }
    return terms;
}

template<class Number>
std::vector<Number> softmax(const std::vector<Number> &x, double scale) {
    std::vector<Number> shares = exponentials(x, scale);
    Number sum = 0;
    for (const Number &term : shares) {
        sum = sum + term;
    }
    for (Number &share : shares) {
        share = share / sum;
    }
    return shares;
}

/** -log(softmax(logits)[target]), without cancellation where the target is nearly certain. */
template<class Number>
Number cross_entropy(const std::vector<Number> &logits, std::size_t target) {
    using std::log1p;
    const auto largest = static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    const std::vector<Number> terms = exponentials(logits, 1);
    Number rest = 0;
    for (std::size_t i = 0; i < terms.size(); i++) {
        rest = i == largest ? rest : rest + terms[i];
    }
    return logits[largest] - logits[target] + log1p(rest);
}

}  // namespace halyard::operations::formulas

#endif
