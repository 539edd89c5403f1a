// The gradients of operations/reference_gradients.h and the derivatives of reference.h, which are written out, against slopes of the
// forward formulas on dual numbers; and those against differences.
#include "operations/dual.h"

#include <cmath>
#include <functional>
#include <map>

#include "operations/formulas.h"
#include "operations/reference_gradients.h"
#include "support/invocation.h"

namespace halyard::tests {
namespace {

using namespace operations;
using Duals = std::vector<Dual>;

constexpr double tolerance = 1e-12;
constexpr double underflow = 0x1p-149;  // of products with dy, of which references leave out what f32 has no number for

/** The activations, by the names of the operations that have them: of an activation itself, of a gated unit that of its gate. */
std::function<Dual(const Dual &)> activation_of(const std::string &name, double beta) {
    static const std::map<std::string, Dual (*)(const Dual &)> functions = {
        {"relu", formulas::relu<Dual>},
        {"relu2", formulas::relu2<Dual>},
        {"gelu", formulas::gelu<Dual>},
        {"gelu_tanh", formulas::gelu_tanh<Dual>},
        {"gelu_sigmoid", [](const Dual &x) { return formulas::swish(x, formulas::gelu_sigmoid_slope); }},
        {"silu", [](const Dual &x) { return formulas::swish(x, 1); }},
        {"sigmoid", formulas::sigmoid<Dual>},
        {"tanh", [](const Dual &x) { return tanh(x); }},
        {"exp", [](const Dual &x) { return exp(x); }},
        {"glu", formulas::sigmoid<Dual>},
        {"bilinear", [](const Dual &x) { return x; }},
        {"reglu", formulas::relu<Dual>},
        {"geglu", formulas::gelu<Dual>},
        {"geglu_tanh", formulas::gelu_tanh<Dual>},
    };
    if (name == "swish" || name == "swiglu") {
        return [beta](const Dual &x) { return formulas::swish(x, beta); };
    }
    return functions.at(name);
}

/** From -20 to 20, where no exponential leaves double's range, and on both sides of 0. */
Row arguments() {
    Row x = {-1e-30, 1e-30};
    for (double each = -20; each <= 20; each += 0.173) {
        x.push_back(each);
    }
    return x;
}

Row random_row(std::size_t width, int seed, double size) {
    Row row;
    for (std::size_t i = 0; i < width; i++) {
        row.push_back(size * bell(seed, static_cast<std::int64_t>(i), 0) + 0.3);
    }
    return row;
}

double largest_of(const Row &row) {
    double largest = 0;
    for (const double value : row) {
        largest = std::fmax(largest, std::fabs(value));
    }
    return largest;
}

/** The slope of `function` at x along feature i. */
template<typename Function>
double slope_along(const Row &x, std::size_t i, const Function &function) {
    Duals moved(x.begin(), x.end());
    moved[i].slope = 1;
    return function(moved).slope;
}

/** `magnitude`: of the largest term that a gradient is a sum of. */
template<typename Function>
void expect_gradient(const ExpectedRow &gradient, const Row &x, double magnitude, const std::string &name,
                     const Function &function) {
    for (std::size_t i = 0; i < x.size(); i++) {
        EXPECT_NEAR(gradient[i].value, slope_along(x, i, function), tolerance * magnitude) << name << " at " << i;
    }
}

Dual weighed(const Row &dy, const Duals &y) {
    Dual sum = 0;
    for (std::size_t i = 0; i < y.size(); i++) {
        sum = sum + dy[i] * y[i];
    }
    return sum;
}

// ---- elementwise ----

TEST(Dual, DerivativesAndGradientsOfActivationsAndGatedUnits) {
    std::size_t compared = 0;
    for (const Operation &gradient : all_operations()) {
        if (gradient.gradient_of.empty() || gradient.needs_features) {
            continue;
        }
        const std::vector<std::size_t> inputs = gradient.with_role(Role::input);
        if (gradient.operands[inputs[0]].times() == 2) {
            continue;  // packed gated units, which are the same numbers in another place
        }
        const Row scalars = gradient.scalar_values();
        const auto activation = activation_of(gradient.gradient_of.substr(0, gradient.gradient_of.find('.')),
                                              scalars.empty() ? 1 : scalars[0]);
        // dx = f'(x) dy; of a gated unit dgate = f'(gate) up dy and dup = f(gate) dy; of a derivative there is no dy.
        constexpr double up = 0.7, dy = -1.3;
        const bool is_unit = inputs.size() == 3;
        for (const double x : arguments()) {
            std::vector<operations::Rows> given(gradient.operands.size());
            const Row values = is_unit ? Row{x, up, dy} : Row{x, dy};
            for (std::size_t i = 0; i < inputs.size(); i++) {
                given[inputs[i]] = {{values[i]}};
            }
            const std::vector<operations::Matrix> got =
                gradient.reference(given, Sizes::of_rows({1, 1}), scalars.data(), Dtype::f32);
            const Dual y = activation(Dual(x, 1));
            const double factor = is_unit ? up * dy : inputs.size() == 2 ? dy : 1, slope = factor * y.slope;
            EXPECT_NEAR(got[0][0][0].value, slope, tolerance * std::fabs(slope) + (inputs.size() > 1 ? underflow : 0))
                << gradient.label << " at " << x;
            if (is_unit) {
                const double dup = dy * y.value;
                EXPECT_NEAR(got[1][0][0].value, dup, tolerance * std::fabs(dup) + underflow) << gradient.label;
            }
        }
        compared++;
    }
    EXPECT_GE(compared, std::size_t{operations::is_subset ? 0 : 20});
}

// ---- norms ----

/** The normalized row, by the weights, of a LayerNorm or an RMSNorm. */
Duals normalized(bool is_layer, const Duals &x, const Duals &weight, const NormParameters &parameters) {
    Dual mean = 0, scale;
    if (is_layer) {
        const auto moments = formulas::layer_moments(x, parameters.eps);
        mean = moments.mean;
        scale = moments.scale;
    } else {
        const auto counted = static_cast<std::size_t>(std::ceil(parameters.p * static_cast<double>(x.size())));
        scale = formulas::root_mean_square(x, counted, parameters.eps, parameters.eps_outside_root).scale;
    }
    Duals y;
    for (std::size_t i = 0; i < x.size(); i++) {
        y.push_back((x[i] - mean) * scale * (parameters.unit_offset ? 1 + weight[i] : weight[i]));
    }
    return y;
}

void expect_norm_gradient(bool is_layer, std::size_t width, NormParameters parameters, const std::string &name) {
    const Row x = random_row(width, 1, 2), dy = random_row(width, 2, 1), weight = random_row(width, 3, 1);
    parameters.weight = &weight;
    const NormGradient gradient =
        is_layer ? layer_norm_gradient(x, dy, parameters) : rms_norm_gradient(x, dy, parameters);
    const ExpectedRow y = is_layer ? layer_norm(x, parameters) : rms_norm(x, parameters);
    const Duals constants(x.begin(), x.end()), weights(weight.begin(), weight.end());
    const Duals forward = normalized(is_layer, constants, weights, parameters);
    for (std::size_t i = 0; i < width; i++) {
        EXPECT_NEAR(forward[i].value, y[i].value, 1e-15 * largest_of(values_of(y))) << name;
    }
    const Expected scale = is_layer ? layer_moments(x, parameters.eps).scale : rms_scale(x, parameters);
    expect_gradient(gradient.dx, x, largest_of(dy) * largest_of(weight) * scale.value, name + ", dx",
                    [&](const Duals &moved) { return weighed(dy, normalized(is_layer, moved, weights, parameters)); });
    const double largest = largest_of(values_of(gradient.weight_terms));
    expect_gradient(gradient.weight_terms, weight, largest, name + ", dweight", [&](const Duals &moved) {
        return weighed(dy, normalized(is_layer, constants, moved, parameters));
    });
}

TEST(Dual, GradientsOfNorms) {
    for (const std::size_t width : {2, 7, 64, 257}) {
        NormParameters parameters;
        parameters.eps = 1e-5;
        expect_norm_gradient(true, width, parameters, "layer_norm " + std::to_string(width));
        for (int choice = 0; choice < 8; choice++) {
            parameters.eps_outside_root = (choice & 1) != 0;
            parameters.unit_offset = (choice & 2) != 0;
            parameters.p = (choice & 4) != 0 ? 0.3 : 1;
            expect_norm_gradient(false, width, parameters,
                                 "rms_norm " + std::to_string(width) + ", choice " + std::to_string(choice));
        }
    }
}

// ---- softmax and losses ----

TEST(Dual, GradientOfSoftmax) {
    for (const std::size_t width : {2, 7, 64, 257}) {
        for (const double scale : {1.0, 0.125, -2.0}) {
            const Row x = random_row(width, 4, 3), dy = random_row(width, 5, 1);
            const Row y = values_of(softmax(x, scale, Dtype::f32));
            expect_gradient(softmax_gradient(y, dy, scale), x, std::fabs(scale) * largest_of(dy),
                            "softmax " + std::to_string(width),
                            [&](const Duals &moved) { return weighed(dy, formulas::softmax(moved, scale)); });
        }
    }
}

TEST(Dual, GradientOfCrossEntropyWithoutCancellation) {
    for (const std::size_t width : {2, 7, 257}) {
        for (const std::size_t target : {std::size_t{0}, width - 1}) {
            // A target that is likely, nearly certain, and nearly impossible.
            for (const double above : {0.0, 60.0, -60.0}) {
                Row logits = random_row(width, 6, 3);
                logits[target] += above;
                const CrossEntropy expected = cross_entropy(logits, target, 0.25);
                const auto loss = [target](const Duals &moved) { return formulas::cross_entropy(moved, target); };
                EXPECT_EQ(loss(Duals(logits.begin(), logits.end())).value, expected.loss.value);
                for (std::size_t i = 0; i < width; i++) {
                    const double slope = 0.25 * slope_along(logits, i, loss);
                    EXPECT_NEAR(expected.dlogits[i].value, slope, tolerance * std::fabs(slope))
                        << width << ", target " << target << " by " << above << ", at " << i;
                }
            }
        }
    }
}

// ---- the numbers themselves ----

TEST(Dual, SlopesAreThoseOfDifferences) {
    const std::map<std::string, std::function<Dual(const Dual &)>> functions = {
        {"quotient", [](const Dual &x) { return (3 * x - 2) / (x * x + 1); }},
        {"quotient of a number", [](const Dual &x) { return 1.0 / (x * x + 1); }},
        {"difference", [](const Dual &x) { return -(x - 2 * x * x); }},
        {"exp", [](const Dual &x) { return exp(x); }},
        {"log1p", [](const Dual &x) { return log1p(x * x); }},
        {"sqrt", [](const Dual &x) { return sqrt(x * x + 2); }},
        {"tanh", [](const Dual &x) { return tanh(x); }},
        {"erfc", [](const Dual &x) { return erfc(x); }},
    };
    for (const auto &[name, function] : functions) {
        for (double x = -4; x <= 4; x += 0.31) {
            // A central difference of fourth order errs by about h^4, and by roundings over h.
            const double h = 1e-3;
            const auto f = [&, &of = function](double offset) { return of(Dual(x + offset)).value; };
            const double slope = (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h);
            EXPECT_NEAR(function(Dual(x, 1)).slope, slope, 1e-10 * std::fmax(1, std::fabs(f(0))))
                << name << " at " << x;
            EXPECT_EQ(function(Dual(x)).slope, 0) << name << ": a constant has no slope";
        }
    }
}

}  // namespace
}  // namespace halyard::tests
