// The references of the matrix products.
//
// Error bounds, with u = 2^-24 and gamma(n) = n u / (1 - n u) (Higham, "Accuracy and Stability of Numerical
// Algorithms", section 3.1). The library promises to sum an element over its K inputs in blocks of 512, in sequence
// inside a block, and the blocks' sums in sequence. A product x_k w_k is rounded where it enters a block's sum (with
// fused multiply-add together with that sum; without, by itself, but the first sum, with zero, is then exact), at every
// step of the block after it and when its block and the later ones are added to the total; the first block is the
// total. So no product goes through more than
//     n = min(K, 512) + ceil(K / 512) - 1
// roundings, and |computed - exact| <= gamma(n) sum_k |x_k| |w_k|. An error e_k that x_k has already adds
// (1 + gamma(n)) e_k |w_k|, and the relative error f that folding a norm made of the weights adds f |x_k| |w_k|. Each
// of these steps may besides lose 2^-150 to a denormal result.
//
// The steps of the epilogue are single f32 operations: a sum or product of two values with errors carries those to
// first and second order and adds u times the largest magnitude its result may have. An activation f turns an error e
// of its argument v into at most e (|f'(v)| + e max|f''| / 2) and adds its own bound of the accuracy table, taken at
// the largest result in reach. The rounding to y's type is left to acceptable(), which compares intervals after it.
//
// Rows in 8 bits err by the bound of docs/numerics.md, which counts the same roundings for a sum of any number of inputs.
//
// The doubles' own errors, 2^-53 K relative to the same sums, are ten thousand times smaller than the bounds.
#include "reference_linear.h"

#include <algorithm>
#include <cmath>

namespace halyard::operations {
namespace {

constexpr double unit = 0x1p-24;
constexpr double underflow = 0x1p-149;
constexpr std::int64_t block = 512;
constexpr std::int64_t int8_unit = 32;  // inputs that share a scale of x

double identity(double x, double) {
    return x;
}

template<double function(double)>
double plain(double x, double) {
    return function(x);
}

template<int percent>
double at_most(double, double, double) {
    return percent / 100.0;
}

double exp_curvature(double x, double error, double) {
    return std::exp(x + error);
}

// silu'' is largest at 0, where it is 1/2; swish(x) = silu(beta x) / beta.
double swish_curvature(double, double, double beta) {
    return 0.5 * std::fabs(beta);
}

template<halyard_status function(const halyard_context *, const DLTensor *, DLTensor *)>
halyard_status without_beta(const halyard_context *context, const DLTensor *x, float, DLTensor *y) {
    return function(context, x, y);
}

halyard_status copy(const halyard_context *context, const DLTensor *x, float, DLTensor *y) {
    return halyard_cast(context, x, y);
}

// ---- One f32 operation on values with errors ---------------------------------------------------------------------

Expected rounded(double value, double carried) {
    return {value, carried + unit * (std::fabs(value) + carried) + underflow};
}

Expected sum(const Expected &a, const Expected &b) {
    return rounded(a.value + b.value, a.error + b.error);
}

Expected difference(const Expected &a, const Expected &b) {
    return rounded(a.value - b.value, a.error + b.error);
}

Expected product(const Expected &a, const Expected &b) {
    return rounded(a.value * b.value, std::fabs(a.value) * b.error + a.error * std::fabs(b.value) + a.error * b.error);
}

Expected activated(const LayerActivation &activation, const ErrorModel &model, const Expected &v, double beta) {
    if (activation.value == HALYARD_IDENTITY) {
        return v;
    }
    const double value = activation.at(v.value, beta), e = v.error;
    const double carried =
        activation.value == HALYARD_RELU
            ? e
            : e * (std::fabs(activation.slope(v.value, beta)) + e * activation.curvature(v.value, e, beta) / 2);
    const double scale = activation.value == HALYARD_SWISH ? beta : 1.0;
    double own = 0;
    for (const double at : {v.value - e, v.value, v.value + e}) {
        own = std::max(own, model.allowed(scale * at, std::fabs(value) + carried, Dtype::f32));
    }
    return {value, carried + own};
}

// ---- Products ----------------------------------------------------------------------------------------------------

/** gamma(n) of a sum over `count` inputs in the promised order. */
double gamma_of(std::int64_t count) {
    const double n = static_cast<double>(std::min(count, block) + (count + block - 1) / block - 1);
    return n * unit / (1 - n * unit);
}

/** One row of x times a matrix. */
ExpectedRow times(const ExpectedRow &x, const Row &w, std::int64_t out) {
    const auto in = static_cast<std::int64_t>(x.size());
    const auto width = static_cast<std::size_t>(out);
    const double gamma = gamma_of(in);
    Row value(width, 0.0), error(width, underflow * static_cast<double>(in + in / block));
    for (std::int64_t k = 0; k < in; k++) {
        const Expected &each = x[static_cast<std::size_t>(k)];
        const double factor = each.value;
        const double magnitude = std::fabs(factor) + each.error;
        const double spread = gamma * magnitude + each.error;
        const double *const row = w.data() + k * out;
        for (std::size_t n = 0; n < width; n++) {
            value[n] += factor * row[n];
            error[n] += spread * std::fabs(row[n]);
        }
    }
    ExpectedRow result(width);
    for (std::size_t n = 0; n < width; n++) {
        result[n] = {value[n], error[n]};
    }
    return result;
}

/** A row with the errors of rounding it to 8 bits. */
ExpectedRow in_8_bits(const Row &x) {
    ExpectedRow rounded_row;
    for (std::size_t k = 0; k < x.size(); k++) {
        const std::size_t first = k / int8_unit * int8_unit, end = std::min(x.size(), first + int8_unit);
        double largest = 0;
        for (std::size_t i = first; i < end; i++) {
            largest = std::max(largest, std::fabs(x[i]));
        }
        // The scale is rounded twice.
        const double scale = largest / 127 * (1 + 3 * unit);
        rounded_row.push_back({x[k], largest < 0x1p-100 ? std::fabs(x[k]) : (0.5 + 0x1p-15) * scale});
    }
    return rounded_row;
}

/** The sums of a matrix's columns in f32, in no worse an order than that of the products. */
ExpectedRow column_sums(const WeightMatrix &matrix) {
    const ExpectedRow ones(static_cast<std::size_t>(matrix.in), {1.0, 0.0});
    return times(ones, matrix.values, matrix.out);
}

/** A folded norm's bias times the matrix, in f32 in no worse an order. */
ExpectedRow column_bias(const WeightMatrix &matrix) {
    ExpectedRow bias;
    for (const double value : matrix.norm_bias) {
        bias.push_back({value, 0.0});
    }
    return times(bias, matrix.unfolded, matrix.out);
}

/** residual + ... without the activation: one half of a layer up to its bias. */
Matrix half(const Matrix &x, const WeightMatrix &matrix, const EpilogueValues &epilogue, const Row *bias) {
    const ExpectedRow sums = epilogue.row_mean != nullptr ? column_sums(matrix) : ExpectedRow();
    const ExpectedRow folded = matrix.norm_bias.empty() ? ExpectedRow() : column_bias(matrix);
    Matrix result;
    result.reserve(x.size());
    for (std::size_t m = 0; m < x.size(); m++) {
        ExpectedRow row = times(x[m], matrix.values, matrix.out);
        for (std::size_t n = 0; n < row.size(); n++) {
            Expected &v = row[n];
            v.error += epilogue.sum_roundoff * (std::fabs(v.value) + v.error);
            if (epilogue.row_mean != nullptr) {
                v = difference(v, product((*epilogue.row_mean)[m], sums[n]));
            }
            if (epilogue.row_scale != nullptr) {
                v = product(v, (*epilogue.row_scale)[m]);
            }
            if (!folded.empty()) {
                v = sum(v, folded[n]);
            }
            if (bias != nullptr) {
                v = sum(v, {(*bias)[n], 0.0});
                v.error += epilogue.sum_roundoff * (std::fabs(v.value) + v.error);
            }
        }
        result.push_back(std::move(row));
    }
    return result;
}

}  // namespace

const std::vector<LayerActivation> &layer_activations() {
    namespace r = reference;
    // Curvatures: relu has none that counts; gelu's second derivative, (2 - x^2) phi(x), is at most 2 phi(0) = 0.80,
    // the tanh form's about as much; gelu_sigmoid is swish with beta 1.702; sigmoid's is at most 0.0963, tanh's 0.77.
    static const std::vector<LayerActivation> all = {
        {HALYARD_IDENTITY, "identity", "", identity, nullptr, nullptr, copy},
        {HALYARD_RELU, "relu", "", plain<r::relu>, nullptr, nullptr, without_beta<halyard_relu>},
        {HALYARD_GELU, "gelu", "gelu", plain<r::gelu>, plain<r::gelu_derivative>, at_most<80>,
         without_beta<halyard_gelu>},
        {HALYARD_GELU_TANH, "gelu_tanh", "gelu_tanh", plain<r::gelu_tanh>, plain<r::gelu_tanh_derivative>, at_most<90>,
         without_beta<halyard_gelu_tanh>},
        {HALYARD_GELU_SIGMOID, "gelu_sigmoid", "gelu_sigmoid", plain<r::gelu_sigmoid>,
         plain<r::gelu_sigmoid_derivative>, at_most<86>, without_beta<halyard_gelu_sigmoid>},
        {HALYARD_SILU, "silu", "silu", plain<r::silu>, plain<r::silu_derivative>, at_most<50>,
         without_beta<halyard_silu>},
        {HALYARD_SWISH, "swish", "swish", r::swish, r::swish_derivative, swish_curvature, halyard_swish},
        {HALYARD_SIGMOID, "sigmoid", "sigmoid", plain<r::sigmoid>, plain<r::sigmoid_derivative>, at_most<10>,
         without_beta<halyard_sigmoid>},
        {HALYARD_TANH, "tanh", "tanh", plain<r::tanh>, plain<r::tanh_derivative>, at_most<77>,
         without_beta<halyard_tanh>},
        {HALYARD_EXP, "exp", "exp", plain<r::exp>, plain<r::exp_derivative>, exp_curvature, without_beta<halyard_exp>},
        {HALYARD_RELU2, "relu2", "relu2", plain<r::relu2>, plain<r::relu2_derivative>, at_most<200>,
         without_beta<halyard_relu2>},
    };
    return all;
}

const LayerActivation &layer_activation(halyard_activation value) {
    return layer_activations()[static_cast<std::size_t>(value)];
}

Matrix linear(const Matrix &x, const LayerValues &layer, const EpilogueValues &epilogue) {
    const LayerActivation &activation = layer_activation(epilogue.activation);
    const ErrorModel model(activation.function);
    Matrix result = half(x, layer.matrix, epilogue, epilogue.bias);
    const Matrix up = layer.up ? half(x, *layer.up, epilogue, epilogue.bias_up) : Matrix();
    for (std::size_t m = 0; m < result.size(); m++) {
        for (std::size_t n = 0; n < result[m].size(); n++) {
            Expected &v = result[m][n];
            v = activated(activation, model, v, epilogue.beta);
            if (layer.up) {
                v = product(v, up[m][n]);
            }
            if (epilogue.residual != nullptr) {
                v = sum(v, {(*epilogue.residual)[m][n], 0.0});
            }
        }
    }
    return result;
}

Matrix products_in_8_bits(const std::vector<Row> &x, const WeightMatrix &matrix, const Row &magnitudes, bool offsets) {
    const auto units = static_cast<double>((matrix.in + int8_unit - 1) / int8_unit);
    const double roundings = 2 + units * (offsets ? 2 : 1);
    const auto out = static_cast<std::size_t>(matrix.out);
    Matrix result;
    for (const Row &row : x) {
        const ExpectedRow rounded_row = in_8_bits(row);
        ExpectedRow y(out, {0, underflow * roundings});
        for (std::size_t k = 0; k < row.size(); k++) {
            const auto [value, error] = rounded_row[k];
            for (std::size_t n = 0; n < out; n++) {
                const double weight = matrix.values[k * out + n];
                y[n].value += value * weight;
                y[n].error +=
                    error * std::fabs(weight) + roundings * unit * (std::fabs(value) + error) * magnitudes[k * out + n];
            }
        }
        result.push_back(std::move(y));
    }
    return result;
}

WeightMatrix matrix_of(const std::vector<Row> &rows) {
    WeightMatrix matrix;
    matrix.out = static_cast<std::int64_t>(rows.size());
    matrix.in = static_cast<std::int64_t>(rows[0].size());
    for (std::size_t k = 0; k < rows[0].size(); k++) {
        for (const Row &row : rows) {
            matrix.values.push_back(row[k]);
        }
    }
    return matrix;
}

Matrix exact_rows(const std::vector<Row> &rows) {
    Matrix matrix;
    matrix.reserve(rows.size());
    for (const Row &row : rows) {
        ExpectedRow exact;
        exact.reserve(row.size());
        for (const double value : row) {
            exact.push_back({value, 0.0});
        }
        matrix.push_back(std::move(exact));
    }
    return matrix;
}

Matrix rounded(Matrix rows, Dtype type) {
    for (ExpectedRow &row : rows) {
        for (Expected &v : row) {
            v.error += unit_roundoff(type) * (std::fabs(v.value) + v.error);
        }
    }
    return rows;
}

double unit_roundoff(Dtype type) {
    return spacing(type, 1.0) / 2;
}

}  // namespace halyard::operations
