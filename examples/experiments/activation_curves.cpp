// Experiment 4: every activation of the library and its derivative on [-4, 4].
#include "csv.h"
#include "experiments.h"

#include <halyard/halyard.hpp>

#include <functional>
#include <vector>

namespace experiments {
namespace {

using Function = std::function<void(const halyard::ConstTensor &x, const halyard::Tensor &y)>;

struct Activation {
    const char *name;
    float beta;  // of Swish; 1 for the others
    Function value, derivative;
};

/** The C functions of one activation. */
using Unary = halyard_status (*)(const halyard_context *, const DLTensor *, DLTensor *);
Activation plain(const char *name, Unary value, Unary derivative) {
    const auto call = [](Unary function) {
        return [function](const halyard::ConstTensor &x, const halyard::Tensor &y) {
            halyard::check(function(nullptr, x.get(), y.get()));
        };
    };
    return {name, 1, call(value), call(derivative)};
}

Activation with_beta(float beta) {
    return {"swish", beta,
            [beta](const halyard::ConstTensor &x, const halyard::Tensor &y) { halyard::swish(x, beta, y); },
            [beta](const halyard::ConstTensor &x, const halyard::Tensor &y) { halyard::swish_derivative(x, beta, y); }};
}

}  // namespace

void activation_curves(const std::filesystem::path &directory) {
    const Activation activations[] = {
        plain("relu", halyard_relu, halyard_relu_derivative),
        plain("relu2", halyard_relu2, halyard_relu2_derivative),
        plain("gelu", halyard_gelu, halyard_gelu_derivative),
        plain("gelu_tanh", halyard_gelu_tanh, halyard_gelu_tanh_derivative),
        plain("gelu_sigmoid", halyard_gelu_sigmoid, halyard_gelu_sigmoid_derivative),
        plain("silu", halyard_silu, halyard_silu_derivative),
        with_beta(0.5f),
        with_beta(2),
        with_beta(8),
        plain("sigmoid", halyard_sigmoid, halyard_sigmoid_derivative),
        plain("tanh", halyard_tanh, halyard_tanh_derivative),
        plain("exp", halyard_exp, halyard_exp_derivative),
    };
    // A power of two, so that the points are f32 numbers and 0 is one of them.
    constexpr int points_per_unit = 64, last = 4 * points_per_unit;
    std::vector<float> x;
    for (int i = -last; i <= last; i++) {
        x.push_back(static_cast<float>(i) / points_per_unit);
    }

    Csv csv(directory / "activation_curves.csv", {"function", "beta", "x", "value", "derivative"});
    std::vector<float> value(x.size()), derivative(x.size());
    for (const Activation &activation : activations) {
        activation.value(x, value);
        activation.derivative(x, derivative);
        for (std::size_t i = 0; i < x.size(); i++) {
            csv.line(activation.name, activation.beta, x[i], value[i], derivative[i]);
        }
    }
    csv.close();
}

}  // namespace experiments
