// Independent float64 references for every operation, written from the definitions and not from the library's code.
//
// Elementwise functions return the exact value for practical purposes: their double error is below 1e-12 relative,
// also in the tails, against 6e-8 for half an ULP of f32. Row operations also say how far correct f32 arithmetic may
// lead from it (see Expected).
#ifndef HALYARD_OPERATIONS_REFERENCE_H
#define HALYARD_OPERATIONS_REFERENCE_H

#include <string_view>
#include <vector>

#include "accuracy_bounds.h"
#include "dtype.h"

namespace halyard::operations {

/** What a result must be before it is rounded to its storage type: f32 arithmetic may end up anywhere in
 *  [value - error, value + error], or at the f32 number nearest to value. An infinite error allows anything. */
struct Expected {
    double value, error;
};

/** Whether a stored result may stand where `expected` was computed. */
bool acceptable(Dtype type, const Expected &expected, double got);

using Row = std::vector<double>;
using ExpectedRow = std::vector<Expected>;
using Matrix = std::vector<ExpectedRow>;

/** The values without their errors. */
Row values_of(const ExpectedRow &expected);

namespace reference {

// Activations; at +-Inf their limits, at NaN NaN.
double relu(double x);
double relu2(double x);
double gelu(double x);
double gelu_tanh(double x);
double gelu_sigmoid(double x);
double silu(double x);
double swish(double x, double beta);
double sigmoid(double x);
double tanh(double x);
double exp(double x);

// Their derivatives. relu's is 0 at 0.
double relu_derivative(double x);
double relu2_derivative(double x);
double gelu_derivative(double x);
double gelu_tanh_derivative(double x);
double gelu_sigmoid_derivative(double x);
double silu_derivative(double x);
double swish_derivative(double x, double beta);
double sigmoid_derivative(double x);
double tanh_derivative(double x);
double exp_derivative(double x);

/** What a gated unit does to its gate. */
struct Gate {
    double (*value)(double);
    std::string_view function;  // the row of the accuracy table that counts; empty: exact
    double (*derivative)(double);
    std::string_view derivative_function, function_of_gradient;
};

extern const Gate glu, bilinear, reglu, geglu, geglu_tanh;
/** What a gated unit in which beta takes part does to its gate. */
struct BetaGate {
    double (*value)(double, double);
    std::string_view function;
    double (*derivative)(double, double);
    std::string_view derivative_function, function_of_gradient;
};
extern const BetaGate swiglu;

}  // namespace reference

/** The rows of the accuracy table for one function. */
class ErrorModel {
public:
    explicit ErrorModel(std::string_view function);

    const std::vector<accuracy::Bound> &bounds() const { return rows; }
    /** The row that counts at this argument (x, or beta * x); null for NaN, and for functions that are exact. */
    const accuracy::Bound *bound_at(double argument) const;
    /** Largest allowed |result before it is rounded to the type - result|; 0 for NaN. */
    double allowed(double argument, double result, Dtype type) const;

private:
    std::vector<accuracy::Bound> rows;
};

/** f(gate) * up, with the gate's allowed error carried through the product. */
Expected gated(double activated, double activated_error, double up);
/** factor * weight; the factor itself may leave the range of f32, where anything may become of it. */
Expected weighted(Expected factor, double weight);

/** Null pointers stand for absent parameters. */
struct NormParameters {
    const Row *weight = nullptr, *bias = nullptr;
    double eps = 0;
    bool eps_outside_root = false, unit_offset = false;
    double p = 1;
};

/** The mean of a row and 1 / sqrt(variance + eps), 0 for a row without deviation and eps = 0. */
struct Moments {
    Expected mean, scale;
};
Moments layer_moments(const Row &x, double eps);
/** 1 / sqrt(mean square + eps) or its variant; 0 for a row of zeros and eps = 0. */
Expected rms_scale(const Row &x, const NormParameters &parameters);

ExpectedRow layer_norm(const Row &x, const NormParameters &parameters);
ExpectedRow rms_norm(const Row &x, const NormParameters &parameters);
ExpectedRow softmax(const Row &x, double scale, Dtype type);

}  // namespace halyard::operations

#endif
