// How far an activation's f32 result may be from the exact value: the accuracy promise of the library in one table,
// read by the tests, by the sweep over all f32 inputs (halyard-accuracy) and by the table in docs/numerics.md.
//
// Errors are counted in ULP, the spacing of f32 numbers at the exact result (2^-149 where that is denormal).
// A derivative crosses zero where f32 arithmetic cancels: around that its error is counted in the ULP of `floor`
// wherever the result is smaller, an absolute bound of max_ulp * ulp(floor).
#ifndef HALYARD_OPERATIONS_ACCURACY_BOUNDS_H
#define HALYARD_OPERATIONS_ACCURACY_BOUNDS_H

#include <limits>
#include <string_view>

namespace halyard::accuracy {

struct Bound {
    std::string_view function;  // as in halyard_<function>
    double from, to;            // of x, ends included; of beta * x for the Swish family
    double max_ulp;
    double floor = 0;
};

inline constexpr double infinity = std::numeric_limits<double>::infinity();

/** The first row whose region holds the argument counts. */
inline constexpr Bound bounds[] = {
    {"relu", -infinity, infinity, 0},
    {"relu2", -infinity, infinity, 0.5},
    {"exp", -infinity, infinity, 2},
    {"sigmoid", -infinity, infinity, 3},
    {"tanh", -infinity, infinity, 4},
    {"gelu", -2, infinity, 4},
    {"gelu", -infinity, -2, 10},
    {"gelu_tanh", -2, infinity, 4},
    {"gelu_tanh", -infinity, -2, 64},
    {"gelu_sigmoid", -infinity, infinity, 4},
    {"silu", -infinity, infinity, 4},
    {"swish", -infinity, infinity, 4},
    {"relu_derivative", -infinity, infinity, 0},
    {"relu2_derivative", -infinity, infinity, 0},
    {"exp_derivative", -infinity, infinity, 2},
    {"sigmoid_derivative", -infinity, infinity, 6},
    {"tanh_derivative", -infinity, infinity, 6},
    {"gelu_derivative", -0.5, infinity, 4},
    {"gelu_derivative", -1.25, -0.5, 4, 0.125},
    {"gelu_derivative", -infinity, -1.25, 10},
    {"gelu_tanh_derivative", -0.5, infinity, 8},
    {"gelu_tanh_derivative", -1.25, -0.5, 8, 0.125},
    {"gelu_tanh_derivative", -infinity, -1.25, 64},
    {"gelu_sigmoid_derivative", -0.5, infinity, 8},
    {"gelu_sigmoid_derivative", -1.25, -0.5, 8, 0.125},
    {"gelu_sigmoid_derivative", -infinity, -1.25, 8},
    {"silu_derivative", -0.75, infinity, 8},
    {"silu_derivative", -2, -0.75, 8, 0.125},
    {"silu_derivative", -infinity, -2, 8},
    {"swish_derivative", -0.75, infinity, 8},
    {"swish_derivative", -2, -0.75, 8, 0.125},
    {"swish_derivative", -infinity, -2, 8},
    // In gradients of gated units, where one exponential serves the function and its derivative.
    {"sigmoid_with_derivative", -infinity, infinity, 4},
    {"gelu_tanh_with_derivative", -2, infinity, 5},
    {"gelu_tanh_with_derivative", -infinity, -2, 64},
    {"swish_with_derivative", -infinity, infinity, 5},
};

/** In 16-bit types the error before the result is rounded may also be so large, relative to the result: 1/32 ULP of the
 *  type. The derivatives are as in f32. */
inline constexpr double relative_error_f16 = 0x1p-16, relative_error_bf16 = 0x1p-13;

/** Whether the table has a row for the function. */
constexpr bool has_bound(std::string_view function) {
    for (const Bound &bound : bounds) {
        if (bound.function == function) {
            return true;
        }
    }
    return false;
}

}  // namespace halyard::accuracy

#endif
