// See layer.h.
#include "layer.h"

#include <cmath>
#include <stdexcept>

#include "reference_linear.h"

namespace halyard::bench {
namespace {

constexpr unsigned first_seed = 200, bias_seed = 210;
constexpr std::int64_t sampled_columns = 256, sampled_rows = 4, sampled_ffn_rows = 2;

PeriodicMatrix layer_matrix(const WorkId &id, Layer::Part part) {
    const std::int64_t out = part == Layer::down ? id.d : id.d_out, in = part == Layer::down ? id.d_out : id.d;
    return {id.dtype, out, in, first_seed + part, 1 / std::sqrt(static_cast<double>(in))};
}

}  // namespace

Layer::Layer(const WorkId &work_id)
    : id(work_id),
      form(*work_id.kernel->layer), matrices{layer_matrix(id, first), layer_matrix(id, up), layer_matrix(id, down)} {
    const auto make_bias = [&](Part part) {
        auto vector = std::make_unique<Matrix>(id.dtype, 1, matrices[part].out());
        vector->fill_random(bias_seed + part, 0.0, 0.1);
        vector->view = vector_view(*vector);
        return vector;
    };
    bias_first_values.resize(static_cast<std::size_t>(matrices[first].out()));
    bias_down_values.resize(static_cast<std::size_t>(matrices[down].out()));
    if (form.has_bias) {
        bias_first = make_bias(first);
        bias_first_values = bias_first->row(0);
    }
    if (form.has_bias && form.is_ffn) {
        bias_down = make_bias(down);
        bias_down_values = bias_down->row(0);
    }
}

Sample Layer::sample(const Work &work) const {
    Sample sample;
    sample.rows = spread(id.rows, form.is_ffn ? sampled_ffn_rows : sampled_rows);
    sample.columns = spread(id.output_width(), sampled_columns);
    for (const std::int64_t row : sample.rows) {
        sample.expected.push_back(expected_row(work, row, sample.columns));
    }
    return sample;
}

void Layer::pack(Work &work) const {
    {
        const Matrix matrix = matrices[first].whole();
        const std::unique_ptr<Matrix> other = form.gated ? std::make_unique<Matrix>(matrices[up].whole()) : nullptr;
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
        const Matrix matrix = matrices[down].whole();
        for (Operands &set : work.sets) {
            set.weights.push_back(pack_weights(work, matrix));
        }
    }
}

double Layer::first_product(const tests::Row &x, std::int64_t column) const {
    const double value =
        activate(form.activation, matrices[first].dot(x, column) + bias_first_values[static_cast<std::size_t>(column)],
                 form.beta);
    return form.gated ? value * matrices[up].dot(x, column) : value;
}

tests::Row Layer::expected_row(const Work &work, std::int64_t row, const std::vector<std::int64_t> &columns) const {
    const Operands &set = work.sets[0];
    const tests::Row x = set.inputs[0].row(row),
                     normalized = normalize(form.norm, x, work.weight ? work.weight->row(0) : tests::Row(),
                                            work.bias ? work.bias->row(0) : tests::Row());
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
        result.push_back(matrices[down].dot(hidden, column) + bias_down_values[i] + (form.has_residual ? x[i] : 0));
    }
    return result;
}

tests::Row normalize(halyard_norm norm, const tests::Row &x, const tests::Row &weight, const tests::Row &bias) {
    if (norm == HALYARD_NORM_NONE) {
        return x;
    }
    const auto unless_empty = [](const tests::Row &row) { return row.empty() ? nullptr : &row; };
    const bool rms = norm == HALYARD_NORM_RMS;
    const tests::NormParameters parameters = {
        unless_empty(weight), unless_empty(bias), rms ? rms_norm_eps : layer_norm_eps, false, false, 1};
    const tests::ExpectedRow normalized = rms ? tests::rms_norm(x, parameters) : tests::layer_norm(x, parameters);
    tests::Row result;
    for (const tests::Expected &each : normalized) {
        result.push_back(each.value);
    }
    return result;
}

double activate(halyard_activation activation, double x, double beta) {
    return tests::layer_activation(activation).at(x, beta);
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
