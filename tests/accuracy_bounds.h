// How far an activation's f32 result may be from the exact value: the accuracy promise of the library in one table,
// read by the tests, by the walk over all f32 inputs (halyard-accuracy) and by the table in docs/numerics.md.
//
// Errors are counted in ULP, the spacing of f32 numbers at the exact result (2^-149 where that is denormal).
// A derivative crosses zero where f32 arithmetic cancels, so its error is counted in the ULP of `floor` wherever the
// result is smaller than that: an absolute bound, max_ulp * ulp(floor).
#ifndef HALYARD_TESTS_ACCURACY_BOUNDS_H
#define HALYARD_TESTS_ACCURACY_BOUNDS_H

#include <limits>
#include <string_view>

namespace halyard::accuracy {

struct Bound {
    std::string_view function;  // as in halyard_<function>
    double from, to;            // of x, ends included; of beta * x for the Swish family
    double max_ulp;
    double floor;
};

inline constexpr double infinity = std::numeric_limits<double>::infinity();

/** The first row whose region holds the argument counts. */
inline constexpr Bound bounds[] = {
    {"relu", -infinity, infinity, 0, 0},
    {"exp", -infinity, infinity, 2, 0},
    {"sigmoid", -infinity, infinity, 3, 0},
    {"tanh", -infinity, infinity, 4, 0},
    {"gelu", -2, infinity, 4, 0},
    {"gelu", -infinity, -2, 64, 0},
    {"gelu_tanh", -2, infinity, 4, 0},
    {"gelu_tanh", -infinity, -2, 64, 0},
    {"gelu_sigmoid", -2, infinity, 4, 0},
    {"gelu_sigmoid", -infinity, -2, 64, 0},
    {"silu", -infinity, infinity, 4, 0},
    {"swish", -2, infinity, 4, 0},
    {"swish", -infinity, -2, 64, 0},
    {"relu_derivative", -infinity, infinity, 0, 0},
    {"exp_derivative", -infinity, infinity, 2, 0},
    {"sigmoid_derivative", -infinity, infinity, 6, 0},
    {"tanh_derivative", -infinity, infinity, 6, 0},
    {"gelu_derivative", -infinity, infinity, 4, 1},
    {"gelu_tanh_derivative", -infinity, infinity, 4, 1},
    {"gelu_sigmoid_derivative", -infinity, infinity, 4, 1},
    {"silu_derivative", -infinity, infinity, 4, 1},
    {"swish_derivative", -infinity, infinity, 4, 1},
};

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
