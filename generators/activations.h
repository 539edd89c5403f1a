// The activations by name, as kernels choose them.
#ifndef HALYARD_GENERATORS_ACTIVATIONS_H
#define HALYARD_GENERATORS_ACTIVATIONS_H

#include <map>
#include <stdexcept>
#include <string>

#include "Halide.h"
#include "math.h"

namespace halyard {

/** The function called `name` at x, as accurate as a result of this dtype needs it; beta is read by swish alone. */
inline Halide::Expr activation(const std::string &name, const Halide::Target &target, DType dtype, Halide::Expr x,
                               Halide::Expr beta) {
    const bool derivative = name.find("_derivative") != std::string::npos;
    const Math math(target, derivative ? DType::f32 : dtype);
    if (name == "identity") {
        return x;
    }
    if (name == "swish") {
        return math.swish(x, beta);
    }
    if (name == "swish_derivative") {
        return math.swish_derivative(x, beta);
    }
    static const std::map<std::string, Halide::Expr (Math::*)(Halide::Expr) const> functions = {
        {"relu", &Math::relu},
        {"relu2", &Math::relu2},
        {"gelu", &Math::gelu},
        {"gelu_tanh", &Math::gelu_tanh},
        {"gelu_sigmoid", &Math::gelu_sigmoid},
        {"silu", &Math::silu},
        {"sigmoid", &Math::sigmoid},
        {"tanh", &Math::tanh},
        {"exp", &Math::exp},
        {"relu_derivative", &Math::relu_derivative},
        {"relu2_derivative", &Math::relu2_derivative},
        {"gelu_derivative", &Math::gelu_derivative},
        {"gelu_tanh_derivative", &Math::gelu_tanh_derivative},
        {"gelu_sigmoid_derivative", &Math::gelu_sigmoid_derivative},
        {"silu_derivative", &Math::silu_derivative},
        {"sigmoid_derivative", &Math::sigmoid_derivative},
        {"tanh_derivative", &Math::tanh_derivative},
        {"exp_derivative", &Math::exp_derivative},
    };
    const auto found = functions.find(name);
    if (found == functions.end()) {
        throw std::invalid_argument("no activation is called " + name);
    }
    return (math.*found->second)(x);
}

/** What activation() is in f32 for a gated unit's function, and its derivative. */
inline Math::WithDerivative activation_with_derivative(const std::string &name, const Halide::Target &target,
                                                       Halide::Expr x, Halide::Expr beta) {
    const Math math(target);
    if (name == "sigmoid") {
        return math.sigmoid_with_derivative(x);
    }
    if (name == "gelu_tanh") {
        return math.gelu_tanh_with_derivative(x);
    }
    if (name == "silu") {
        return math.silu_with_derivative(x);
    }
    if (name == "swish") {
        return math.swish_with_derivative(x, beta);
    }
    if (name == "identity") {
        return {x, 1.0f};
    }
    // What gelu and its derivative share is written alike in both.
    return {activation(name, target, DType::f32, x, beta),
            activation(name + "_derivative", target, DType::f32, x, beta)};
}

}  // namespace halyard

#endif
