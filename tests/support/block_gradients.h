// The parameters of a block in the tests of its gradients, and slopes of a float64 reference in them.
#ifndef HALYARD_TESTS_BLOCK_GRADIENTS_H
#define HALYARD_TESTS_BLOCK_GRADIENTS_H

#include <cmath>
#include <vector>

#include "support/block.h"

namespace halyard::tests {

/** A parameter: its gradient's field, and the values that the reference takes it from. */
struct Parameter {
    const char *name;
    DLTensor *halyard_block_gradients::*field;
    WeightMatrix BlockValues::*matrix;  // or null
    Row *vector;                        // of the values
    Shape shape;
};

/** Lists those that a block has, q, k and v apart. */
inline std::vector<Parameter> parameters_of(const BlockForm &form, BlockValues &values) {
    using G = halyard_block_gradients;
    std::vector<Parameter> all;
    const auto add_matrix = [&](const char *name, DLTensor *G::*field, WeightMatrix BlockValues::*matrix) {
        const WeightMatrix &of = values.*matrix;
        if (!of.values.empty()) {
            const bool in_out = form.layout == HALYARD_WEIGHT_IN_OUT;
            all.push_back({name, field, matrix, nullptr, in_out ? Shape{of.in, of.out} : Shape{of.out, of.in}});
        }
    };
    const auto add_vector = [&](const char *name, DLTensor *G::*field, Row &vector) {
        if (!vector.empty()) {
            all.push_back({name, field, nullptr, &vector, {static_cast<std::int64_t>(vector.size())}});
        }
    };
    add_matrix("q_proj", &G::q_proj, &BlockValues::q);
    add_matrix("k_proj", &G::k_proj, &BlockValues::k);
    add_matrix("v_proj", &G::v_proj, &BlockValues::v);
    add_matrix("o_proj", &G::o_proj, &BlockValues::o);
    add_matrix("gate_proj", &G::gate_proj, &BlockValues::gate);
    add_matrix("up_proj", &G::up_proj, &BlockValues::up);
    add_matrix("down_proj", &G::down_proj, &BlockValues::down);
    add_vector("q_proj_bias", &G::q_proj_bias, values.q_bias);
    add_vector("k_proj_bias", &G::k_proj_bias, values.k_bias);
    add_vector("v_proj_bias", &G::v_proj_bias, values.v_bias);
    add_vector("o_proj_bias", &G::o_proj_bias, values.o_bias);
    add_vector("gate_proj_bias", &G::gate_proj_bias, values.gate_bias);
    add_vector("up_proj_bias", &G::up_proj_bias, values.up_bias);
    add_vector("down_proj_bias", &G::down_proj_bias, values.down_bias);
    add_vector("q_norm", &G::q_norm, values.q_norm);
    add_vector("k_norm", &G::k_norm, values.k_norm);
    add_vector("attention_norm", &G::attention_norm, values.attention_norm.weight);
    add_vector("attention_norm_bias", &G::attention_norm_bias, values.attention_norm.bias);
    add_vector("ffn_norm", &G::ffn_norm, values.ffn_norm.weight);
    add_vector("ffn_norm_bias", &G::ffn_norm_bias, values.ffn_norm.bias);
    add_vector("attention_post_norm", &G::attention_post_norm, values.attention_post_norm.weight);
    add_vector("attention_post_norm_bias", &G::attention_post_norm_bias, values.attention_post_norm.bias);
    add_vector("ffn_post_norm", &G::ffn_post_norm, values.ffn_post_norm.weight);
    add_vector("ffn_post_norm_bias", &G::ffn_post_norm_bias, values.ffn_post_norm.bias);
    return all;
}

/** A value that the reference takes the parameter's element [row, column] from. */
inline double &value_of(const Parameter &parameter, const BlockForm &form, BlockValues &values, std::int64_t row,
                        std::int64_t column) {
    if (parameter.matrix == nullptr) {
        return (*parameter.vector)[static_cast<std::size_t>(column)];
    }
    WeightMatrix &matrix = values.*parameter.matrix;
    const bool in_out = form.layout == HALYARD_WEIGHT_IN_OUT;
    return matrix.values[static_cast<std::size_t>((in_out ? row : column) * matrix.out + (in_out ? column : row))];
}

/** The slope of f() in what set(value) sets, around `middle`. References take vectors in f32, so both ends are f32. */
template<typename Set, typename Function>
double slope_at(double middle, const Set &set, const Function &f) {
    constexpr double h = 0x1p-11;
    const double low = static_cast<float>(middle - h), high = static_cast<float>(middle + h);
    const auto at = [&](double value) {
        set(value);
        return f();
    };
    const double slope = (at(high) - at(low)) / (high - low);
    set(middle);
    return slope;
}

inline double largest_of(const Tensor &tensor) {
    double largest = 0;
    for (std::int64_t i = 0; i < tensor.count(); i++) {
        largest = std::max(largest, std::abs(tensor.get(i / tensor.width(), i % tensor.width())));
    }
    return largest;
}

/** Expects some elements of a gradient to be slopes: of f(), in what set(row, column, value) sets and get(row, column) gives.
 *
 * f32 errs by some 2^-21 of the largest terms of these short sums, the slope by as much of its bend. Scores whose gradients cancel
 * leave the errors of what they are made of, which `largest_of_all` gradients stand for. */
template<typename Get, typename Set, typename Function>
void expect_slopes(const std::string &name, const Tensor &gradient, double largest_of_all, const Get &get,
                   const Set &set, const Function &f) {
    const double error = 0x1p-17 * largest_of(gradient) + 0x1p-20 * largest_of_all;
    const std::int64_t step = std::max<std::int64_t>(1, gradient.count() / 5);
    for (std::int64_t i = step / 2; i < gradient.count(); i += step) {
        const std::int64_t row = i / gradient.width(), column = i % gradient.width();
        const double slope = slope_at(
            get(row, column), [&](double value) { set(row, column, value); }, f);
        EXPECT_NEAR(gradient.get(row, column), slope, error) << name << " " << row << " " << column;
    }
}

}  // namespace halyard::tests

#endif
