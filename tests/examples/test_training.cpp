// The gradients of examples/experiments/training: in f64 beside central differences, and in f32 beside f64.
#include "examples/experiments/training/adam.h"
#include "examples/experiments/training/model.h"

#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace experiments::training {
namespace {

/** In (-1/2, 1/2), the same as in tests/data/training/make.py. */
class Numbers {
public:
    explicit Numbers(std::uint32_t seed) : state(seed) {}
    double operator()() {
        state = state * 1664525u + 1013904223u;
        return static_cast<double>(state >> 8) / 16777216.0 - 0.5;
    }

private:
    std::uint32_t state;
};

template<class T>
void fill(Matrix<T> &matrix, Numbers &numbers, double scale) {
    for (T &value : matrix.values) {
        value = static_cast<T>(static_cast<float>(scale * numbers()));  // f32 and f64 begin alike
    }
}
template<class T>
void fill(const Parameters<T> &parameters, Numbers &numbers, double scale) {
    for (Parameter<T> *parameter : parameters) {
        fill(parameter->value, numbers, scale);
    }
}
template<class T>
Matrix<T> matrix(std::int64_t rows, std::int64_t columns, Numbers &numbers, double scale = 2) {
    Matrix<T> result(rows, columns);
    fill(result, numbers, scale);
    return result;
}

/** Gradients of `loss` as they are left by it, beside differences of it, element by element. */
void expect_differences(const std::vector<std::pair<Matrix<double> *, Matrix<double>>> &gradients,
                        const std::function<double()> &loss) {
    for (const auto &[values, gradient] : gradients) {
        ASSERT_EQ(values->values.size(), gradient.values.size());
        for (std::size_t i = 0; i < values->values.size(); i++) {
            double &value = values->values[i];
            const double before = value, h = 1e-5 * std::max(1.0, std::abs(before));
            value = before + h;
            const double above = loss();
            value = before - h;
            const double below = loss();
            value = before;
            const double difference = (above - below) / (2 * h), tolerance = 1e-8 + 1e-6 * std::abs(difference);
            ASSERT_NEAR(gradient.values[i], difference, tolerance)
                << "element " << i << " of " << values->values.size();
        }
    }
}

/** That of the parameters and of x of `layer`, whose loss is the sum of y times fixed weights. */
template<class Layer, class Forward>
void expect_layer(Layer &layer, Parameters<double> parameters, const Forward &forward, Matrix<double> x) {
    Numbers numbers(7);
    fill(parameters, numbers, 1);
    const Matrix<double> weights = matrix<double>(forward(x).rows, forward(x).columns, numbers);
    const auto loss = [&] {
        const Matrix<double> y = forward(x);
        double sum = 0;
        for (std::size_t i = 0; i < y.values.size(); i++) {
            sum += weights.values[i] * y.values[i];
        }
        return sum;
    };
    for (int pass = 0; pass < 2; pass++) {  // a second one adds nothing
        loss();
        const Matrix<double> dx = layer.backward(weights);
        std::vector<std::pair<Matrix<double> *, Matrix<double>>> gradients{{&x, dx}};
        for (Parameter<double> *parameter : parameters) {
            gradients.emplace_back(&parameter->value, parameter->gradient);
        }
        expect_differences(gradients, loss);
    }
}

template<class Layer>
Parameters<double> parameters_of(Layer &layer) {
    Parameters<double> all;
    layer.append_to(all);
    return all;
}

TEST(Gradient, OfLinearIsThatOfDifferences) {
    for (const bool has_bias : {false, true}) {
        Linear<double> layer(5, 3, has_bias);
        Numbers numbers(1);
        expect_layer(
            layer, parameters_of(layer), [&](const auto &x) { return layer.forward(x); },
            matrix<double>(4, 5, numbers));
    }
}

TEST(Gradient, OfLayerNormIsThatOfDifferences) {
    Norm<double> layer(6);
    Numbers numbers(2);
    expect_layer(
        layer, parameters_of(layer), [&](const auto &x) { return layer.forward(x); }, matrix<double>(4, 6, numbers));
}

TEST(Gradient, OfAttentionIsThatOfDifferences) {
    for (const bool causal : {false, true}) {
        for (const std::int64_t tokens : {1, 3}) {
            Attention<double> layer(6, 2, causal);
            Numbers numbers(3);
            expect_layer(
                layer, parameters_of(layer), [&](const auto &x) { return layer.forward(x, tokens); },
                matrix<double>(2 * tokens, 6, numbers));
        }
    }
}

TEST(Gradient, OfFeedForwardNetworksIsThatOfDifferences) {
    for (const Function function :
         {Function::identity, Function::relu, Function::gelu, Function::gelu_tanh, Function::silu, Function::sigmoid}) {
        for (const bool gated : {false, true}) {
            Ffn<double> layer(4, 7, function, gated, !gated);
            Numbers numbers(4);
            expect_layer(
                layer, parameters_of(layer), [&](const auto &x) { return layer.forward(x); },
                matrix<double>(3, 4, numbers));
        }
    }
}

TEST(Gradient, OfStacksIsThatOfDifferences) {
    for (const bool pre_norm : {true, false}) {
        BlockShape shape;
        shape.d = 4, shape.heads = 2, shape.ff = 6, shape.pre_norm = pre_norm;
        Stack<double> stack(shape, 2);
        Numbers numbers(5);
        expect_layer(
            stack, stack.parameters(), [&](const auto &x) { return stack.forward(x, 3); },
            matrix<double>(6, 4, numbers));
    }
}

TEST(Gradient, OfTheSquaredErrorIsThatOfDifferences) {
    Numbers numbers(6);
    Matrix<double> y = matrix<double>(3, 4, numbers), gradient, ignored;
    const Matrix<double> target = matrix<double>(3, 4, numbers);
    squared_error(y, target, gradient);
    expect_differences({{&y, gradient}}, [&] { return squared_error(y, target, ignored); });
}

TEST(Gradient, OfCrossEntropyIsThatOfDifferences) {
    Numbers numbers(7);
    Matrix<double> logits = matrix<double>(4, 5, numbers, 8), gradient, ignored;
    const std::vector<int> targets = {0, 4, 2, 2};
    cross_entropy(logits, targets, gradient);
    expect_differences({{&logits, gradient}}, [&] { return cross_entropy(logits, targets, ignored); });
}

TEST(CrossEntropy, KeepsWhatIsLeftWhereTheTargetIsNearlyCertain) {
    Matrix<float> logits(1, 2), gradient;
    logits.values = {30.0f, 0.0f};
    EXPECT_NEAR(cross_entropy(logits, {0}, gradient) / std::exp(-30.0), 1, 1e-6);
    EXPECT_NEAR(static_cast<double>(gradient.values[0]) / -std::exp(-30.0), 1, 1e-6);
}

TEST(Gradient, OfALanguageModelIsThatOfDifferences) {
    BlockShape shape;
    shape.d = 4, shape.heads = 2, shape.ff = 5, shape.causal = true, shape.function = Function::silu,
    shape.gated = true;
    LanguageModel<double> model(shape, 1, 6, 3);
    const std::vector<int> ids = {0, 5, 2, 2, 1, 0}, targets = {5, 2, 1, 1, 0, 3};
    Numbers numbers(8);
    fill(model.parameters(), numbers, 1);
    Matrix<double> dlogits;
    const auto loss = [&] { return cross_entropy(model.forward(ids), targets, dlogits); };
    loss();
    model.backward(dlogits);
    std::vector<std::pair<Matrix<double> *, Matrix<double>>> gradients;
    for (Parameter<double> *parameter : model.parameters()) {
        gradients.emplace_back(&parameter->value, parameter->gradient);
    }
    expect_differences(gradients, loss);
}

/** Losses of some steps of Adam, and gradient norms of the first block, by turns. */
template<class T>
std::vector<double> trained(bool pre_norm, int steps) {
    BlockShape shape;
    shape.d = 32, shape.heads = 4, shape.ff = 128, shape.pre_norm = pre_norm;
    Stack<T> stack(shape, 3);
    Numbers numbers(9);
    for (Parameter<T> *parameter : stack.parameters()) {
        if (parameter->value.rows > 1) {
            fill(parameter->value, numbers, 0.5);
        }
    }
    const Matrix<T> x = matrix<T>(2 * 8, 32, numbers, 4), target = matrix<T>(2 * 8, 32, numbers, 4);
    Adam<T> adam(stack.parameters());
    std::vector<double> result;
    for (int step = 0; step < steps; step++) {
        Matrix<T> dy;
        result.push_back(squared_error(stack.forward(x, 8), target, dy));
        stack.backward(dy);
        result.push_back(gradient_norm(stack.blocks[0]->parameters()));
        adam.step(1e-3);
    }
    return result;
}

/** What PyTorch gave in f64 for a norm position, in the order of `trained`. */
std::vector<double> of_pytorch(const std::string &norm_position) {
    std::ifstream file(HALYARD_TEST_DATA "/training/losses.csv");
    std::vector<double> result;
    for (std::string line; std::getline(file, line);) {
        std::istringstream fields(line);
        std::string first, step, loss, norm;
        std::getline(fields, first, ',');
        std::getline(fields, step, ',');
        std::getline(fields, loss, ',');
        std::getline(fields, norm, ',');
        if (first == norm_position) {
            result.insert(result.end(), {std::stod(loss), std::stod(norm)});
        }
    }
    return result;
}

TEST(Training, IsThatOfPyTorch) {
    for (const std::string norm_position : {"pre", "post"}) {
        const std::vector<double> right = of_pytorch(norm_position);
        const std::vector<double> in_f64 = trained<double>(norm_position == "pre", 10),
                                  in_f32 = trained<float>(norm_position == "pre", 10);
        ASSERT_EQ(right.size(), in_f64.size());
        for (std::size_t i = 0; i < right.size(); i++) {
            EXPECT_NEAR(in_f64[i], right[i], 1e-9 * right[i]) << norm_position << " " << i;
            EXPECT_NEAR(in_f32[i], right[i], 1e-4 * right[i]) << norm_position << " " << i;
        }
        EXPECT_LT(right[18], right[0]);
    }
}

TEST(Training, HasTheSameBitsForAnyNumberOfThreads) {
    set_threads(1);
    const std::vector<double> alone = trained<float>(true, 5);
    for (const int threads : {2, 3, 8}) {
        set_threads(threads);
        EXPECT_EQ(trained<float>(true, 5), alone) << threads;
    }
    set_threads(0);
}

}  // namespace
}  // namespace experiments::training
