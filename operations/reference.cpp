// The references. Error terms are first-order rounding error analysis (Higham, "Accuracy and Stability of Numerical
// Algorithms", chapters 3 and 4) of the summation order the library promises: a fixed number of virtual lanes, each
// summed in sequence, then a binary tree.
#include "reference.h"

#include <algorithm>
#include <cmath>

#include "formulas.h"

namespace halyard::operations {

using formulas::gelu_sigmoid_slope, formulas::gelu_tanh_cubic, formulas::infinity, formulas::inverse_root_two,
    formulas::root_two_over_pi;

namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

constexpr double inverse_root_two_pi = 0.398942280401432677939946059934382;  // 1 / sqrt(2 pi)

constexpr double unit = 0x1p-24;        // relative error of one f32 operation
constexpr double underflow = 0x1p-149;  // absolute error of one f32 operation with a denormal result, and a bit more
constexpr double max_f32 = 0x1.fffffep127;

/** The longest chain of additions behind a sum of `count` terms over `lanes` virtual lanes and a binary tree. */
double chain_length(std::size_t count, int lanes) {
    return std::ceil(double(count) / lanes) + std::log2(lanes);
}

/** The prefix of a row that enters the mean square. */
std::size_t moment_width(std::size_t width, double p) {
    return static_cast<std::size_t>(std::ceil(p * static_cast<double>(width)));
}

/** Whether a sum of squares of finite numbers leaves f32's range: then f32 statistics promise nothing for the row. */
bool beyond_f32(double squares) {
    return std::isfinite(squares) && squares > 0.99 * max_f32;
}

double weight_at(const NormParameters &parameters, std::size_t i) {
    const double weight = parameters.weight != nullptr ? (*parameters.weight)[i] : 1.0;
    return parameters.weight != nullptr && parameters.unit_offset ? 1.0 + weight : weight;
}

/** d/dx of x * sigmoid(g(x)) where g has the value t and x g'(x) the value x_slope. */
double gated_slope(double t, double x_slope) {
    return reference::sigmoid(t) * (1.0 + x_slope * reference::sigmoid(-t));
}

}  // namespace

Row values_of(const ExpectedRow &expected) {
    Row values;
    values.reserve(expected.size());
    for (const Expected &each : expected) {
        values.push_back(each.value);
    }
    return values;
}

bool acceptable(Dtype type, const Expected &expected, double got) {
    if (std::isinf(expected.error)) {
        return true;
    }
    if (std::isnan(expected.value)) {
        return std::isnan(got);
    }
    if (std::isnan(got)) {
        return false;
    }
    double low = expected.value, high = expected.value;
    if (std::isfinite(expected.value)) {
        const double nearest = round_to(Dtype::f32, expected.value);
        low = std::min(nearest, expected.value - expected.error);
        high = std::max(nearest, expected.value + expected.error);
    }
    if (type == Dtype::f32) {
        // Only what overflows when rounded may be infinite.
        return (got >= low && got <= high) ||
               (std::isinf(got) && (got == round_to(type, low) || got == round_to(type, high)));
    }
    // Rounding is monotonic: an f32 value between the two was rounded to something between theirs.
    return got >= round_to(type, low) && got <= round_to(type, high);
}

namespace reference {

double relu(double x) {
    return formulas::relu(x);
}

double sigmoid(double x) {
    return formulas::sigmoid(x);
}

double tanh(double x) {
    return std::tanh(x);
}

double exp(double x) {
    return std::exp(x);
}

double relu2(double x) {
    return formulas::relu2(x);
}

double gelu(double x) {
    return formulas::gelu(x);
}

double gelu_tanh(double x) {
    return formulas::gelu_tanh(x);
}

double swish(double x, double beta) {
    return formulas::swish(x, beta);
}

double silu(double x) {
    return swish(x, 1.0);
}

double gelu_sigmoid(double x) {
    return swish(x, gelu_sigmoid_slope);
}

double relu_derivative(double x) {
    return std::isnan(x) ? x : x > 0 ? 1.0 : 0.0;
}

double relu2_derivative(double x) {
    return 2 * relu(x);
}

double sigmoid_derivative(double x) {
    return sigmoid(x) * sigmoid(-x);
}

double tanh_derivative(double x) {
    // 1 - tanh^2 = 4 e / (1 + e)^2 with e = exp(-2 |x|) keeps the tail.
    const double e = std::exp(-2 * std::fabs(x));
    return 4 * e / ((1 + e) * (1 + e));
}

double exp_derivative(double x) {
    return std::exp(x);
}

double gelu_derivative(double x) {
    if (std::isinf(x)) {
        return x > 0 ? 1.0 : 0.0;
    }
    return 0.5 * std::erfc(-x * inverse_root_two) + x * inverse_root_two_pi * std::exp(-0.5 * x * x);
}

double gelu_tanh_derivative(double x) {
    if (std::isinf(x)) {
        return x > 0 ? 1.0 : 0.0;
    }
    const double t = 2 * root_two_over_pi * (x + gelu_tanh_cubic * x * x * x);
    return gated_slope(t, 2 * root_two_over_pi * (x + 3 * gelu_tanh_cubic * x * x * x));
}

double swish_derivative(double x, double beta) {
    if (beta == 0) {
        return std::isnan(x) ? x : 0.5;
    }
    const double t = beta * x;
    if (std::isinf(t)) {
        return t > 0 ? 1.0 : 0.0;
    }
    return gated_slope(t, t);
}

double silu_derivative(double x) {
    return swish_derivative(x, 1.0);
}

double gelu_sigmoid_derivative(double x) {
    return swish_derivative(x, gelu_sigmoid_slope);
}

const Gate glu = {sigmoid, "sigmoid", sigmoid_derivative, "sigmoid_derivative", "sigmoid_with_derivative"};
const Gate bilinear = {[](double gate) { return gate; }, "", [](double) { return 1.0; }, "", ""};
const Gate reglu = {relu, "", relu_derivative, "", ""};
const Gate geglu = {gelu, "gelu", gelu_derivative, "gelu_derivative", "gelu"};
const Gate geglu_tanh = {gelu_tanh, "gelu_tanh", gelu_tanh_derivative, "gelu_tanh_derivative",
                         "gelu_tanh_with_derivative"};
const BetaGate swiglu = {swish, "swish", swish_derivative, "swish_derivative", "swish_with_derivative"};

}  // namespace reference

ErrorModel::ErrorModel(std::string_view function) {
    for (const accuracy::Bound &bound : accuracy::bounds) {
        if (bound.function == function) {
            rows.push_back(bound);
        }
    }
}

const accuracy::Bound *ErrorModel::bound_at(double argument) const {
    for (const accuracy::Bound &bound : rows) {
        if (argument >= bound.from && argument <= bound.to) {
            return &bound;
        }
    }
    return nullptr;
}

double ErrorModel::allowed(double argument, double result, Dtype type) const {
    const accuracy::Bound *bound = bound_at(argument);
    if (bound == nullptr || bound->max_ulp == 0) {
        return 0.0;
    }
    const bool derivative = bound->function.find("_derivative") != std::string_view::npos;
    const double relative = derivative || type == Dtype::f32 ? 0.0
                            : type == Dtype::f16             ? accuracy::relative_error_f16
                                                             : accuracy::relative_error_bf16;
    const double in_f32 = bound->max_ulp * ulp_f32(std::max(std::fabs(result), bound->floor));
    return std::max(in_f32, relative * std::fabs(result));
}

Expected gated(double activated, double activated_error, double up) {
    if (std::isinf(up) && activated != 0 && std::fabs(activated) <= activated_error) {
        // Infinity times zero or times the smallest numbers: both are within the activation's error.
        return {activated * up, infinity};
    }
    // An activation below half the smallest f32 number is zero, which matters when up is infinite.
    const double factor = std::fabs(activated) <= 0x1p-150 ? std::copysign(0.0, activated) : activated;
    const double product = factor * up;
    if (activated_error == 0 || !std::isfinite(product)) {
        return {product, 0.0};
    }
    const double carried = activated_error * std::fabs(up);
    return {product, carried + 0.5 * ulp_f32(std::fabs(product) + carried)};
}

Expected weighted(Expected factor, double weight) {
    const double largest = std::fabs(factor.value) + factor.error;
    if (std::isinf(factor.error) || (std::isfinite(factor.value) && std::isinf(round_to(Dtype::f32, largest)))) {
        return {factor.value * weight, infinity};
    }
    return gated(factor.value, factor.error, weight);
}

namespace {

/** What correct f32 arithmetic makes of a row's moments, and how far it may be from them. */
struct RowMoments {
    double mean, scale;
    double shift;        // of the pivot from the mean
    double mean_error;   // of the mean, as its distance from the pivot
    double scale_error;  // relative
    bool defined;        // the squares are in f32's range
};

RowMoments moments_of(const Row &x, double eps) {
    const auto width = static_cast<double>(x.size());
    const auto [mean, variance, scale] = formulas::layer_moments(x, eps);
    double magnitude = 0, spread = 0;
    for (const double value : x) {
        magnitude += std::fabs(value);
        spread += std::fabs(value - mean);
    }

    // Sums may be taken over deviations from a pivot near the mean, such as the mean of the first 64 features, but not
    // over x itself: errors grow with the distance of mean and pivot, not with the mean. 32 is the least lane count.
    const std::size_t pivot_features = std::min<std::size_t>(x.size(), 64);
    double pivot = 0;
    for (std::size_t i = 0; i < pivot_features; i++) {
        pivot += x[i] / static_cast<double>(pivot_features);
    }
    const double shift = std::fabs(mean - pivot) + 8 * unit * (magnitude / width);
    const double chain = chain_length(x.size(), 32);
    const double rest = (chain + 3) * unit * (spread / width + shift);
    const double variance_error = (chain + 6) * unit * (variance + shift * shift) + 2 * shift * rest + underflow;
    const double scale_error = scale == 0 ? 0.0 : variance_error * scale * scale / 2 + 3 * unit;
    return {mean, scale, shift, rest, scale_error, !beyond_f32(variance * width)};
}

/** As moments_of(), for the mean square, which has a scale and its relative error alone. */
RowMoments mean_square_of(const Row &x, const NormParameters &parameters) {
    const std::size_t counted = moment_width(x.size(), parameters.p);
    const auto [mean_square, scale] =
        formulas::root_mean_square(x, counted, parameters.eps, parameters.eps_outside_root);

    // Each square is rounded at most once and each sum once; then the division, epsilon, the root and the reciprocal.
    const double square_error = (chain_length(counted, 64) + 4) * unit;
    const double lost = parameters.eps_outside_root ? underflow / mean_square : underflow * scale * scale;
    const double scale_error = (square_error + (mean_square == 0 ? 0.0 : lost)) / 2 + 3 * unit;
    return {0, scale, 0, 0, scale_error, !beyond_f32(mean_square * static_cast<double>(counted))};
}

}  // namespace

Moments layer_moments(const Row &x, double eps) {
    const RowMoments m = moments_of(x, eps);
    if (!m.defined) {
        return {{m.mean, infinity}, {m.scale, infinity}};
    }
    // The mean is the pivot plus the mean distance from it: one more rounding.
    return {{m.mean, m.mean_error + unit * (std::fabs(m.mean) + m.mean_error) + underflow},
            {m.scale, m.scale_error * m.scale}};
}

Expected rms_scale(const Row &x, const NormParameters &parameters) {
    const RowMoments m = mean_square_of(x, parameters);
    return {m.scale, m.defined ? m.scale_error * m.scale : infinity};
}

ExpectedRow layer_norm(const Row &x, const NormParameters &parameters) {
    const RowMoments m = moments_of(x, parameters.eps);
    ExpectedRow expected;
    expected.reserve(x.size());
    for (std::size_t i = 0; i < x.size(); i++) {
        const double weight = weight_at(parameters, i);
        const double bias = parameters.bias != nullptr ? (*parameters.bias)[i] : 0.0;
        const double centred = x[i] - m.mean;
        const double centred_error = m.mean_error + unit * (2 * std::fabs(centred) + 3 * m.shift);
        const double scaled = weight * (centred * m.scale);
        const double value = scaled + bias;
        const double error = std::fabs(weight) * m.scale * centred_error +
                             std::fabs(scaled) * (m.scale_error + 3 * unit) + unit * std::fabs(value) +
                             underflow * (2 + std::fabs(weight));
        expected.push_back({value, m.defined ? error : infinity});
    }
    return expected;
}

ExpectedRow rms_norm(const Row &x, const NormParameters &parameters) {
    const RowMoments m = mean_square_of(x, parameters);
    ExpectedRow expected;
    expected.reserve(x.size());
    for (std::size_t i = 0; i < x.size(); i++) {
        const double weight = weight_at(parameters, i);
        const double value = x[i] * m.scale * weight;
        const double error = std::fabs(value) * (m.scale_error + 3 * unit) + underflow * (1 + std::fabs(weight));
        expected.push_back({value, m.defined ? error : infinity});
    }
    return expected;
}

ExpectedRow softmax(const Row &x, double scale, Dtype type) {
    double largest = -infinity;
    bool undefined = false;
    for (const double value : x) {
        const double score = scale * value;
        undefined = undefined || std::isnan(score) || score == infinity;
        largest = std::max(largest, score);
    }
    if (undefined || largest == -infinity) {
        return ExpectedRow(x.size(), {not_a_number, 0.0});
    }

    // An error of a in the argument of exp is one of a relative in its result, on top of exp's own: 2 ULP (4 units), or
    // what 16-bit types may have, as much again being in the sum.
    const double exp_error = type == Dtype::f32 ? 4 * unit : accuracy::relative_error_f16 / 2;
    // The argument is rounded as a difference of features and, unless scale is 1, as its product with it.
    const double roundings = scale == 1 ? 1 : 2;
    const auto argument_error = [&](double value) {
        return std::isinf(value) ? 0.0 : roundings * unit * std::fabs(scale * value - largest);
    };
    const Row shares = formulas::softmax(x, scale);
    double common_error = (chain_length(x.size(), 64) + 4) * unit;
    for (std::size_t i = 0; i < x.size(); i++) {
        common_error += shares[i] == 0 ? 0.0 : shares[i] * (argument_error(x[i]) + exp_error);
    }

    ExpectedRow expected;
    expected.reserve(x.size());
    for (std::size_t i = 0; i < x.size(); i++) {
        const double error = shares[i] == 0 ? 0.0 : shares[i] * (argument_error(x[i]) + exp_error + common_error);
        expected.push_back({shares[i], error + 4 * underflow});
    }
    return expected;
}

}  // namespace halyard::operations
