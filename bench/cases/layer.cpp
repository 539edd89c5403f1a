// See layer.h.
#include "layer.h"

#include <cmath>

namespace halyard::bench {
namespace {

constexpr unsigned first_seed = 200, bias_seed = 210;
constexpr std::int64_t sampled_columns = 256, sampled_rows = 4, sampled_ffn_rows = 2;

PeriodicMatrix layer_matrix(const CaseId &id, Layer::Part part) {
    const std::int64_t out = part == Layer::down ? id.d : id.d_out, in = part == Layer::down ? id.d_out : id.d;
    return {id.dtype, out, in, first_seed + part, 1 / std::sqrt(static_cast<double>(in))};
}

}  // namespace

Layer::Layer(const CaseId &case_id)
    : id(case_id),
      form(*case_id.kernel->layer), matrices{layer_matrix(id, first), layer_matrix(id, up), layer_matrix(id, down)} {
    if (form.has_bias) {
        bias_first = random_vector(id.dtype, matrices[first].out(), bias_seed + first, 0);
    }
    if (form.has_bias && form.is_ffn) {
        bias_down = random_vector(id.dtype, matrices[down].out(), bias_seed + down, 0);
    }
}

Sample Layer::sample(const BenchmarkCase &bench_case) const {
    Sample sample;
    sample.rows = spread(id.rows, form.is_ffn ? sampled_ffn_rows : sampled_rows);
    sample.columns = spread(id.output_width(), sampled_columns);
    const auto values = [](const auto &vector) { return vector ? vector->row(0) : operations::Row(); };
    const auto products = [&](Part part) {
        return
            [&matrix = matrices[part]](const operations::Row &x, std::int64_t output) { return matrix.dot(x, output); };
    };
    const operations::LayerReference reference = {
        products(first),         products(up),       products(down),    values(bench_case.weight),
        values(bench_case.bias), values(bias_first), values(bias_down), id.d_out};
    const OperandSet &set = bench_case.sets[0];
    for (const std::int64_t row : sample.rows) {
        const operations::Row residual = form.takes_residual() ? set.inputs[1].row(row) : operations::Row();
        sample.expected.push_back(
            operations::expected_of_layer(form, reference, set.inputs[0].row(row), residual, sample.columns));
    }
    return sample;
}

void Layer::pack(BenchmarkCase &bench_case) const {
    {
        const Matrix matrix = matrices[first].whole();
        const std::unique_ptr<Matrix> other = form.gated ? std::make_unique<Matrix>(matrices[up].whole()) : nullptr;
        const halyard_pack_options options = operations::pack_options(
            form, other ? &other->view : nullptr, bench_case.weight ? &bench_case.weight->view : nullptr,
            bench_case.bias ? &bench_case.bias->view : nullptr);
        for (OperandSet &set : bench_case.sets) {
            set.weights.push_back(pack_weights(bench_case, matrix, options));
        }
    }
    if (form.is_ffn) {
        const Matrix matrix = matrices[down].whole();
        for (OperandSet &set : bench_case.sets) {
            set.weights.push_back(pack_weights(bench_case, matrix));
        }
    }
}

std::shared_ptr<const halyard_weights> pack_weights(const BenchmarkCase &bench_case, const Matrix &matrix,
                                                    const halyard_pack_options &options) {
    halyard_weights *packed = nullptr;
    require(halyard_weights_pack(bench_case.context.get(), &matrix.view, &options, nullptr, 0, &packed));
    return {packed, [packed](const halyard_weights *) { halyard_weights_destroy(packed); }};
}

halyard_status call_layer(BenchmarkCase &bench_case, OperandSet &set) {
    const LayerForm &form = *bench_case.id.kernel->layer;
    const auto view = [](const Matrix *matrix) { return matrix != nullptr ? &matrix->view : nullptr; };
    operations::LayerTensors tensors;
    tensors.x = &set.inputs[0].view;
    tensors.residual = form.takes_residual() ? &set.inputs[1].view : nullptr;
    tensors.norm_weight = view(bench_case.weight.get());
    tensors.norm_bias = view(bench_case.bias.get());
    tensors.bias = view(bench_case.layer->bias(Layer::first));
    tensors.bias_down = view(bench_case.layer->bias(Layer::down));
    tensors.first = set.weights[0].get();
    tensors.down = form.is_ffn ? set.weights[1].get() : nullptr;
    tensors.y = &set.outputs[0].view;
    return operations::call_layer(bench_case.context.get(), form, tensors);
}

}  // namespace halyard::bench
