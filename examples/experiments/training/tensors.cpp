// Products and activations: f32 by halyard, f64 by the formulas.
#include "tensors.h"

#include "../pool.h"

#include <algorithm>
#include <cmath>
#include <halyard/halyard.hpp>
#include <memory>

namespace experiments::training {
namespace {

/** Its calls run on the pool too: two sets of threads would disturb each other. */
halyard::Context &context() {
    static halyard::Context made = [] {
        halyard::Context on_pool;
        on_pool.set_parallel_for([](int count, const halyard::Context::Task &task) {
            parallel_for(count, [&](std::int64_t i) { task(static_cast<int>(i)); });
        });
        return on_pool;
    }();
    return made;
}

std::unique_ptr<Pool> &pool() {
    static auto made = std::make_unique<Pool>(context().num_threads());
    return made;
}

halyard::ConstTensor view(const Matrix<float> &x) {
    return {x.values, {x.rows, x.columns}};
}
halyard::Tensor view(Matrix<float> &x) {
    return {x.values, {x.rows, x.columns}};
}

Matrix<float> packed_product(const Matrix<float> &a, const Matrix<float> &b, halyard::WeightLayout layout) {
    halyard::PackOptions options;
    options.layout = layout;
    // Memory that is given back is cleared when it is got again, which takes as long as packing.
    thread_local std::vector<char> memory;
    constexpr std::size_t alignment = 64;
    const std::size_t bytes = static_cast<std::size_t>(halyard::Weights::packed_bytes(view(b), options));
    memory.resize(std::max(memory.size(), bytes + alignment));
    void *begin = memory.data();
    std::size_t room = memory.size();
    std::align(alignment, bytes, begin, room);
    const halyard::Weights weights =
        halyard::Weights::pack(view(b), options, begin, static_cast<std::int64_t>(room), context().get());
    Matrix<float> result(a.rows, layout == halyard::WeightLayout::in_out ? b.columns : b.rows);
    halyard::linear(view(a), weights, view(result), context().get());
    return result;
}

/** The argument of tanh in GELU's tanh form, and its slope. */
double gelu_argument(double x) {
    return 0.7978845608028654 * (x + 0.044715 * x * x * x);
}
double gelu_argument_slope(double x) {
    return 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

double value_of(Function function, double x) {
    switch (function) {
    case Function::relu:
        return std::max(x, 0.0);
    case Function::gelu:
        return x * 0.5 * std::erfc(-x * std::sqrt(0.5));
    case Function::gelu_tanh:
        return x * 0.5 * (1 + std::tanh(gelu_argument(x)));
    case Function::silu:
        return x / (1 + std::exp(-x));
    case Function::sigmoid:
        return 1 / (1 + std::exp(-x));
    default:
        return x;
    }
}

double slope_of(Function function, double x) {
    const double s = value_of(Function::sigmoid, x);
    switch (function) {
    case Function::relu:
        return x > 0 ? 1 : 0;
    case Function::gelu:
        return 0.5 * std::erfc(-x * std::sqrt(0.5)) + x * std::exp(-0.5 * x * x) * 0.3989422804014327;
    case Function::gelu_tanh: {
        const double t = std::tanh(gelu_argument(x));
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * gelu_argument_slope(x);
    }
    case Function::silu:
        return s + x * s * (1 - s);
    case Function::sigmoid:
        return s * (1 - s);
    default:
        return 1;
    }
}

}  // namespace

void set_threads(int count) {
    context().set_num_threads(count);
    pool() = std::make_unique<Pool>(context().num_threads());
}

void parallel_for(std::int64_t count, const std::function<void(std::int64_t)> &work) {
    pool()->run(count, work);
}

void parallel_ranges(std::int64_t count, std::int64_t size,
                     const std::function<void(std::int64_t, std::int64_t)> &work) {
    parallel_for((count + size - 1) / size, [&](std::int64_t i) { work(i * size, std::min(count, (i + 1) * size)); });
}

template<>
Matrix<float> product(const Matrix<float> &a, const Matrix<float> &b) {
    return packed_product(a, b, halyard::WeightLayout::in_out);
}
template<>
Matrix<float> product_transposed(const Matrix<float> &a, const Matrix<float> &b) {
    return packed_product(a, b, halyard::WeightLayout::out_in);
}

template<>
Matrix<double> product_transposed(const Matrix<double> &a, const Matrix<double> &b) {
    Matrix<double> result(a.rows, b.rows);
    for (std::int64_t i = 0; i < a.rows; i++) {
        for (std::int64_t j = 0; j < b.rows; j++) {
            for (std::int64_t k = 0; k < a.columns; k++) {
                result.row(i)[j] += a.row(i)[k] * b.row(j)[k];
            }
        }
    }
    return result;
}

template<>
Matrix<double> product(const Matrix<double> &a, const Matrix<double> &b) {
    return product_transposed(a, transposed(b));
}
template<>
void apply(Function function, const Matrix<float> &x, Matrix<float> &y, Matrix<float> &slope) {
    using Call = void (*)(const halyard::ConstTensor &, const halyard::Tensor &, const halyard_context *);
    struct Pair {
        Call activation, derivative;
    };
    // In the order of Function, whose first value needs none.
    static constexpr Pair pairs[] = {
        {nullptr, nullptr},
        {halyard::relu, halyard::relu_derivative},
        {halyard::gelu, halyard::gelu_derivative},
        {halyard::gelu_tanh, halyard::gelu_tanh_derivative},
        {halyard::silu, halyard::silu_derivative},
        {halyard::sigmoid, halyard::sigmoid_derivative},
    };
    y = x;
    slope = Matrix<float>(x.rows, x.columns);
    if (function == Function::identity) {
        std::fill(slope.values.begin(), slope.values.end(), 1.0f);
        return;
    }
    const Pair &pair = pairs[static_cast<std::size_t>(function)];
    pair.activation(view(x), view(y), context().get());
    pair.derivative(view(x), view(slope), context().get());
}
template<>
void apply(Function function, const Matrix<double> &x, Matrix<double> &y, Matrix<double> &slope) {
    y = slope = Matrix<double>(x.rows, x.columns);
    for (std::size_t i = 0; i < x.values.size(); i++) {
        y.values[i] = value_of(function, x.values[i]);
        slope.values[i] = slope_of(function, x.values[i]);
    }
}

}  // namespace experiments::training
