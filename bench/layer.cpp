// See layer.h.
#include "layer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "reference_linear.h"

namespace halyard::bench {
namespace {

constexpr unsigned first_seed = 200, bias_seed = 210;
constexpr std::int64_t sampled_columns = 256, sampled_rows = 4, sampled_ffn_rows = 2;

/** `most` of [0, count), the first and the last among them. */
std::vector<std::int64_t> spread(std::int64_t count, std::int64_t most) {
    const std::int64_t n = std::min(count, most);
    std::vector<std::int64_t> places;
    for (std::int64_t i = 0; i < n; i++) {
        places.push_back(n == 1 ? 0 : i * (count - 1) / (n - 1));
    }
    return places;
}

double activate(halyard_activation activation, double x, double beta) {
    return tests::layer_activation(activation).at(x, beta);
}

tests::Row normalize(const Work &work, const tests::Row &x) {
    const LayerForm &form = *work.id.kernel->layer;
    if (form.norm == HALYARD_NORM_NONE) {
        return x;
    }
    const tests::Row weight = work.weight ? work.weight->row(0) : tests::Row();
    const tests::Row bias = work.bias ? work.bias->row(0) : tests::Row();
    const auto unless_empty = [](const tests::Row &row) { return row.empty() ? nullptr : &row; };
    const bool rms = form.norm == HALYARD_NORM_RMS;
    const tests::NormParameters parameters = {
        unless_empty(weight), unless_empty(bias), rms ? rms_norm_eps : layer_norm_eps, false, false, 1};
    const tests::ExpectedRow normalized = rms ? tests::rms_norm(x, parameters) : tests::layer_norm(x, parameters);
    tests::Row result;
    for (const tests::Expected &each : normalized) {
        result.push_back(each.value);
    }
    return result;
}

}  // namespace

Layer::Layer(const Work &work) : id(work.id), form(*work.id.kernel->layer) {
    for (const Part part : {first, up, down}) {
        values[part] = period(part).row(0);
    }
    const auto make_bias = [&](Part part) {
        auto vector = std::make_unique<Matrix>(id.dtype, 1, out(part));
        vector->fill_random(bias_seed + part, 0.0, 0.1);
        vector->view.ndim = 1;
        vector->view.shape++;
        return vector;
    };
    bias_first_values.resize(static_cast<std::size_t>(out(first)));
    bias_down_values.resize(static_cast<std::size_t>(out(down)));
    if (form.has_bias) {
        bias_first = make_bias(first);
        bias_first_values = bias_first->row(0);
    }
    if (form.has_bias && form.is_ffn) {
        bias_down = make_bias(down);
        bias_down_values = bias_down->row(0);
    }

    rows = spread(id.rows, form.is_ffn ? sampled_ffn_rows : sampled_rows);
    columns = spread(id.output_width(), sampled_columns);
    for (const std::int64_t row : rows) {
        expected.push_back(expected_row(work, row));
    }
}

Matrix Layer::filled(Part part, std::int64_t rows_of, std::int64_t width) const {
    Matrix matrix(id.dtype, rows_of, width);
    matrix.fill_random(first_seed + part, 0.0, 1 / std::sqrt(static_cast<double>(in(part))));
    return matrix;
}

Matrix Layer::source(Part part) const {
    return filled(part, out(part), in(part));
}

Matrix Layer::period(Part part) const {
    return filled(part, 1, static_cast<std::int64_t>(random_period));
}

void Layer::pack(Work &work) const {
    {
        const Matrix matrix = source(first);
        const std::unique_ptr<Matrix> other = form.gated ? std::make_unique<Matrix>(source(up)) : nullptr;
        halyard_pack_options options{};
        options.up = other ? &other->view : nullptr;
        if (form.deferred_norm) {
            options.norm_weight = work.weight ? &work.weight->view : nullptr;
            options.norm_bias = work.bias ? &work.bias->view : nullptr;
        }
        for (Operands &set : work.sets) {
            set.weights.push_back(pack_weights(work, matrix, options));
        }
    }
    if (form.is_ffn) {
        const Matrix matrix = source(down);
        for (Operands &set : work.sets) {
            set.weights.push_back(pack_weights(work, matrix));
        }
    }
}

double Layer::dot(Part part, const tests::Row &x, std::int64_t column) const {
    const tests::Row &w = values[part];
    std::size_t place = static_cast<std::size_t>(column) * x.size() % random_period;
    double sums[4] = {0, 0, 0, 0};
    for (std::size_t k = 0; k < x.size();) {
        const std::size_t end = std::min(x.size(), k + random_period - place);
        for (; k + 4 <= end; k += 4, place += 4) {
            for (std::size_t i = 0; i < 4; i++) {
                sums[i] += x[k + i] * w[place + i];
            }
        }
        for (; k < end; k++, place++) {
            sums[0] += x[k] * w[place];
        }
        place = 0;
    }
    return sums[0] + sums[1] + sums[2] + sums[3];
}

double Layer::first_product(const tests::Row &x, std::int64_t column) const {
    const double value =
        activate(form.activation, dot(first, x, column) + bias_first_values[static_cast<std::size_t>(column)], form.beta);
    return form.gated ? value * dot(up, x, column) : value;
}

tests::Row Layer::expected_row(const Work &work, std::int64_t row) const {
    const Operands &set = work.sets[0];
    const tests::Row x = set.inputs[0].row(row), normalized = normalize(work, x);
    tests::Row result;
    if (!form.is_ffn) {
        const tests::Row residual = form.has_residual ? set.inputs[1].row(row) : tests::Row();
        for (const std::int64_t column : columns) {
            result.push_back(first_product(normalized, column) +
                             (form.has_residual ? residual[static_cast<std::size_t>(column)] : 0));
        }
        return result;
    }
    tests::Row hidden(static_cast<std::size_t>(id.d_out));
    for (std::size_t i = 0; i < hidden.size(); i++) {
        hidden[i] = first_product(normalized, static_cast<std::int64_t>(i));
    }
    for (const std::int64_t column : columns) {
        const auto i = static_cast<std::size_t>(column);
        result.push_back(dot(down, hidden, column) + bias_down_values[i] + (form.has_residual ? x[i] : 0));
    }
    return result;
}

double Layer::worst_error(const Matrix &y) const {
    constexpr double infinite = std::numeric_limits<double>::infinity();
    double worst = 0;
    std::size_t sample = 0;
    for (std::int64_t row = 0; row < y.rows(); row++) {
        const tests::Row got = y.row(row);
        if (std::any_of(got.begin(), got.end(), [](double value) { return std::isnan(value); })) {
            return infinite;
        }
        if (sample == rows.size() || rows[sample] != row) {
            continue;
        }
        double largest = std::numeric_limits<double>::min(), error = 0;
        for (std::size_t i = 0; i < columns.size(); i++) {
            const double value = expected[sample][i];
            largest = std::max(largest, std::fabs(value));
            error = std::max(error, std::fabs(got[static_cast<std::size_t>(columns[i])] - value));
        }
        worst = std::max(worst, error / largest);
        sample++;
    }
    return worst;
}

std::shared_ptr<const halyard_weights> pack_weights(const Work &work, const Matrix &matrix,
                                                    const halyard_pack_options &options) {
    halyard_weights *packed = nullptr;
    if (halyard_weights_pack(work.context.get(), &matrix.view, &options, nullptr, 0, &packed) != HALYARD_OK) {
        throw std::runtime_error(halyard_last_error());
    }
    return {packed, [packed](const halyard_weights *) { halyard_weights_destroy(packed); }};
}

halyard_linear_options linear_options(const Work &work, const Operands &set) {
    const LayerForm &form = *work.id.kernel->layer;
    halyard_linear_options options{};
    const Matrix *bias = work.layer->bias(Layer::first);
    options.bias = bias != nullptr ? &bias->view : nullptr;
    options.activation = form.activation;
    options.residual = form.has_residual ? &set.inputs[1].view : nullptr;
    return options;
}

halyard_ffn_options ffn_options(const Work &work) {
    const LayerForm &form = *work.id.kernel->layer;
    halyard_ffn_options options{};
    options.norm = form.norm;
    options.eps = form.norm == HALYARD_NORM_RMS ? rms_norm_eps : layer_norm_eps;
    options.deferred_norm = form.deferred_norm ? 1 : 0;
    if (!form.deferred_norm) {
        options.norm_weight = work.weight ? &work.weight->view : nullptr;
        options.norm_bias = work.bias ? &work.bias->view : nullptr;
    }
    options.activation = form.activation;
    const Matrix *bias = work.layer->bias(Layer::first), *bias_down = work.layer->bias(Layer::down);
    options.bias = bias != nullptr ? &bias->view : nullptr;
    options.bias_down = bias_down != nullptr ? &bias_down->view : nullptr;
    options.residual = form.has_residual ? 1 : 0;
    return options;
}

}  // namespace halyard::bench
