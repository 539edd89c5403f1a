// See operands.h.
#include "operands.h"

#include <numeric>

namespace halyard::bench {
namespace {

constexpr unsigned first_seed = 200, bias_seed = 210;
constexpr std::int64_t sampled_columns = 256, sampled_rows = 4, sampled_ffn_rows = 2;

const halyard_weights *pack(const BenchmarkCase &bench_case, OperandSet &set, const Matrix &matrix,
                            const halyard_pack_options &options) {
    halyard_weights *packed = nullptr;
    require(halyard_weights_pack(bench_case.context.get(), &matrix.view, &options, nullptr, 0, &packed));
    set.weights.emplace_back(packed, halyard_weights_destroy);
    return packed;
}

const halyard_weights *pack(const BenchmarkCase &bench_case, OperandSet &set, const operations::Q4KMatrix &blocks) {
    halyard_weights *packed = nullptr;
    require(blocks.pack(bench_case.context.get(), &packed));
    set.weights.emplace_back(packed, halyard_weights_destroy);
    return packed;
}

const DLTensor *view_of(const std::unique_ptr<Matrix> &matrix) {
    return matrix ? &matrix->view : nullptr;
}

Sample sample_of(const BenchmarkCase &bench_case) {
    const CaseId &id = bench_case.id;
    const LayerForm &form = *id.kernel->layer;
    const Parameters &parameters = bench_case.parameters;
    const auto values = [](const auto &vector) { return vector ? vector->row(0) : operations::Row(); };
    const auto products = [&](const char *name) -> operations::Products {
        const auto found = parameters.matrices.find(name);
        if (found == parameters.matrices.end()) {
            return {};
        }
        return [&form, &parameters, &matrix = found->second, name](const operations::Row &x, std::int64_t output) {
            if (!form.is_quantized()) {
                return matrix.dot(x, output);
            }
            const operations::Row values = form.q4_k
                                               ? parameters.blocks.at(name).row(output)
                                               : operations::quantized_values(matrix.row(output), form.quantization);
            return std::inner_product(x.begin(), x.end(), values.begin(), 0.0);
        };
    };
    const operations::LayerReference reference = {products("first"),
                                                  products("up"),
                                                  products("down"),
                                                  values(bench_case.weight),
                                                  values(bench_case.bias),
                                                  parameters.values("bias"),
                                                  parameters.values("bias_down"),
                                                  id.d_out};
    Sample sample(id.rows, form.is_ffn ? sampled_ffn_rows : sampled_rows, id.output_width(), sampled_columns);
    const std::vector<Matrix> &inputs = bench_case.sets[0].inputs;
    for (const std::int64_t row : sample.rows) {
        const operations::Row residual = form.takes_residual() ? inputs[1].row(row) : operations::Row();
        sample.expected.push_back(
            operations::expected_of_layer(form, reference, inputs[0].row(row), residual, sample.columns));
    }
    return sample;
}

/** dz of some rows of a layer's gradient: one matrix of rows, or those of gate and up. */
std::vector<std::vector<operations::Row>> gradients_of_sums(const LayerForm &form, const OperandSet &set) {
    const operations::LayerActivation &activation = operations::layer_activation(form.activation);
    std::vector<std::vector<operations::Row>> dz(form.gated ? 2 : 1);
    for (std::int64_t row = 0; row < set.inputs[0].rows(); row++) {
        operations::Row dgate = set.inputs[1].row(row), dup = dgate;
        for (std::size_t i = 0; form.gated && i < dgate.size(); i++) {
            const double gate = set.inputs[2].row(row)[i], up = set.inputs[3].row(row)[i];
            dgate[i] *= up * activation.slope(gate, form.beta);
            dup[i] *= activation.at(gate, form.beta);
        }
        dz[0].push_back(std::move(dgate));
        if (form.gated) {
            dz[1].push_back(std::move(dup));
        }
    }
    return dz;
}

/** What dx and the gradient of each matrix must be. */
std::vector<Sample> samples_of_gradient(const BenchmarkCase &bench_case) {
    const CaseId &id = bench_case.id;
    const OperandSet &set = bench_case.sets[0];
    const auto dz = gradients_of_sums(*id.kernel->layer, set);
    const char *const names[] = {"first", "up"};
    std::vector<Sample> samples;
    Sample &dx = samples.emplace_back(id.rows, sampled_rows, id.d, sampled_columns);
    for (const std::int64_t row : dx.rows) {
        operations::Row sums(static_cast<std::size_t>(id.d));
        for (std::size_t matrix = 0; matrix < dz.size(); matrix++) {
            for (std::int64_t out = 0; out < id.d_out; out++) {
                const operations::Row weights = bench_case.parameters.matrices.at(names[matrix]).row(out);
                const double factor = dz[matrix][static_cast<std::size_t>(row)][static_cast<std::size_t>(out)];
                for (std::size_t i = 0; i < sums.size(); i++) {
                    sums[i] += factor * weights[i];
                }
            }
        }
        dx.expect(sums);
    }
    for (const std::vector<operations::Row> &of_matrix : dz) {
        Sample &dweight = samples.emplace_back(id.d_out, sampled_rows, id.d, sampled_columns);
        for (const std::int64_t out : dweight.rows) {
            operations::Row sums(static_cast<std::size_t>(id.d));
            for (std::size_t row = 0; row < of_matrix.size(); row++) {
                const operations::Row x = set.inputs[0].row(static_cast<std::int64_t>(row));
                for (std::size_t i = 0; i < sums.size(); i++) {
                    sums[i] += of_matrix[row][static_cast<std::size_t>(out)] * x[i];
                }
            }
            dweight.expect(sums);
        }
    }
    return samples;
}

}  // namespace

void add_layer_parameters(BenchmarkCase &bench_case) {
    const CaseId &id = bench_case.id;
    const LayerForm &form = *id.kernel->layer;
    Parameters &parameters = bench_case.parameters;
    parameters.add_matrix("first", id.dtype, id.d_out, id.d, first_seed);
    if (form.gated) {
        parameters.add_matrix("up", id.dtype, id.d_out, id.d, first_seed + 1);
    }
    if (form.is_ffn) {
        parameters.add_matrix("down", id.dtype, id.d, id.d_out, first_seed + 2);
    }
    if (form.has_bias) {
        parameters.add_vector("bias", id.dtype, id.d_out, bias_seed, 0);
    }
    if (form.has_bias && form.is_ffn) {
        parameters.add_vector("bias_down", id.dtype, id.d, bias_seed + 2, 0);
    }
}

void pack_layer(BenchmarkCase &bench_case) {
    const Parameters &parameters = bench_case.parameters;
    const LayerForm &form = *bench_case.id.kernel->layer;
    const Matrix matrix = parameters.matrices.at("first").whole();
    const auto up = form.gated ? std::make_unique<Matrix>(parameters.matrices.at("up").whole()) : nullptr;
    const auto down = form.is_ffn ? std::make_unique<Matrix>(parameters.matrices.at("down").whole()) : nullptr;
    for (OperandSet &set : bench_case.sets) {
        set.layer.first = pack(bench_case, set, matrix,
                               operations::pack_options(form, view_of(up), set.layer.norm_weight, set.layer.norm_bias));
        set.layer.down = down ? pack(bench_case, set, *down, {}) : nullptr;
    }
}

void prepare_layer_gradient(BenchmarkCase &bench_case) {
    const CaseId &id = bench_case.id;
    const LayerForm &form = *id.kernel->layer;
    add_layer_parameters(bench_case);
    const std::int64_t sums = form.gated ? id.d_out : 0;
    bench_case.make_sets({{id.d, 1.5}, {id.d_out, 1.5}, {sums, 1.5}, {sums, 1.5}}, id.d);
    for (OperandSet &set : bench_case.sets) {
        for (int matrix = 0; matrix < (form.gated ? 2 : 1); matrix++) {
            set.outputs.emplace_back(Dtype::f32, id.d_out, id.d);
        }
    }
    pack_layer(bench_case);
    bench_case.samples = samples_of_gradient(bench_case);
}

halyard_status call_layer_gradient(BenchmarkCase &bench_case, OperandSet &set) {
    const LayerForm &form = *bench_case.id.kernel->layer;
    halyard_linear_options options{};
    options.activation = form.activation;
    halyard_linear_gradients gradients{};
    gradients.dx = &set.outputs[0].view;
    gradients.dweight = &set.outputs[1].view;
    if (form.gated) {
        options.sums = &set.inputs[2].view;
        options.sums_up = &set.inputs[3].view;
        gradients.dweight_up = &set.outputs[2].view;
    }
    return halyard_linear_backward(bench_case.context.get(), &set.inputs[0].view, set.layer.first, &set.inputs[1].view,
                                   &options, &gradients);
}

void prepare_layer(BenchmarkCase &bench_case) {
    const CaseId &id = bench_case.id;
    const LayerForm &form = *id.kernel->layer;
    Parameters &parameters = bench_case.parameters;
    add_layer_parameters(bench_case);
    bench_case.make_sets({{id.d, 1.5}, {form.takes_residual() ? id.d_out : 0, 1.5}}, id.output_width());
    for (OperandSet &set : bench_case.sets) {
        operations::LayerTensors &tensors = set.layer;
        tensors.x = &set.inputs[0].view;
        tensors.residual = form.takes_residual() ? &set.inputs[1].view : nullptr;
        tensors.norm_weight = view_of(bench_case.weight);
        tensors.norm_bias = view_of(bench_case.bias);
        tensors.bias = parameters.vector("bias");
        tensors.bias_down = parameters.vector("bias_down");
        tensors.y = &set.outputs[0].view;
    }
    if (form.q4_k) {
        const PeriodicMatrix &matrix = parameters.matrices.at("first");
        const auto row = [&](std::int64_t output) { return matrix.row(output); };
        const auto &blocks = parameters.blocks.try_emplace("first", id.d_out, id.d, row).first->second;
        for (OperandSet &set : bench_case.sets) {
            set.layer.first = pack(bench_case, set, blocks);
        }
    } else {
        pack_layer(bench_case);
    }
    bench_case.samples.push_back(sample_of(bench_case));
}

}  // namespace halyard::bench
