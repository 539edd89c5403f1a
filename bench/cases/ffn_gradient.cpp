// Rows of the gradients of feed-forward networks: see operands.h.
#include "operands.h"

#include <array>
#include <numeric>

#include "operations/reference_gradients.h"

namespace halyard::bench {
namespace {

using operations::Row;

constexpr std::int64_t sampled_rows = 4, sampled_columns = 256;

/** What the gradients of the norm take in float64 grows with all three sizes. Beyond so many products they are only searched for NaN. */
constexpr double most_products = 0x1p27;

const char *const matrix_names[] = {"first", "up"};

void add_multiple(Row &sums, double factor, const Row &row) {
    for (std::size_t i = 0; i < sums.size(); i++) {
        sums[i] += factor * row[i];
    }
}

/** The gradients in float64, from x, dy and the sums that the forward call kept. */
class Reference {
public:
    explicit Reference(const BenchmarkCase &bench_case)
        : id(bench_case.id), form(*id.kernel->layer), matrices(bench_case.parameters.matrices),
          inputs(bench_case.sets[0].inputs), weight(bench_case.weight->row(0)),
          bias(bench_case.bias ? bench_case.bias->row(0) : Row()) {
        norm.weight = &weight;
        norm.bias = bias.empty() ? nullptr : &bias;
        norm.eps = form.eps();
    }

    /** In the order of the outputs. */
    std::vector<Sample> samples() const {
        std::vector<Sample> all = {of_dx()};
        Sample dbias(1, 1, id.d_out, sampled_rows);
        for (Sample &dweight : of_first_matrices(dbias)) {
            all.push_back(std::move(dweight));
        }
        all.push_back(of_down());
        if (form.has_bias) {
            all.push_back(std::move(dbias));
            all.push_back(of_bias_down());
        }
        for (Sample &of_vector : of_norm()) {
            all.push_back(std::move(of_vector));
        }
        return all;
    }

private:
    std::int64_t rows() const { return id.rows; }
    std::size_t first_matrices() const { return form.gated ? 2 : 1; }

    /** dz of one feature: of the first matrix and of `up`. */
    std::array<double, 2> gradient_of_sums(double dhidden, double gate, double up) const {
        const operations::LayerActivation &activation = operations::layer_activation(form.activation);
        return {dhidden * up * activation.slope(gate, form.beta), dhidden * activation.at(gate, form.beta)};
    }
    Row sums_up(std::int64_t row) const {
        return form.gated ? inputs[3].row(row) : Row(static_cast<std::size_t>(id.d_out), 1.0);
    }
    Row normalized(std::int64_t row) const {
        const Row x = inputs[0].row(row);
        return operations::values_of(form.norm == HALYARD_NORM_RMS ? operations::rms_norm(x, norm)
                                                                   : operations::layer_norm(x, norm));
    }

    /** The gradient of the normalized row. */
    Row gradient_of_normalized(std::int64_t row) const {
        Row dhidden(static_cast<std::size_t>(id.d_out)), sums(static_cast<std::size_t>(id.d));
        const Row dy = inputs[1].row(row), gates = inputs[2].row(row), ups = sums_up(row);
        for (std::size_t i = 0; i < dy.size(); i++) {
            add_multiple(dhidden, dy[i], matrices.at("down").row(static_cast<std::int64_t>(i)));
        }
        for (std::size_t out = 0; out < dhidden.size(); out++) {
            const auto dz = gradient_of_sums(dhidden[out], gates[out], ups[out]);
            for (std::size_t matrix = 0; matrix < first_matrices(); matrix++) {
                add_multiple(sums, dz[matrix], matrices.at(matrix_names[matrix]).row(static_cast<std::int64_t>(out)));
            }
        }
        return sums;
    }
    operations::NormGradient through_norm(std::int64_t row, const Row &dnormalized) const {
        const Row x = inputs[0].row(row);
        return form.norm == HALYARD_NORM_RMS ? operations::rms_norm_gradient(x, dnormalized, norm)
                                             : operations::layer_norm_gradient(x, dnormalized, norm);
    }

    Sample of_dx() const {
        Sample dx(rows(), sampled_rows, id.d, sampled_columns);
        for (const std::int64_t row : dx.rows) {
            Row sum = operations::values_of(through_norm(row, gradient_of_normalized(row)).dx);
            add_multiple(sum, 1, inputs[1].row(row));
            dx.expect(sum);
        }
        return dx;
    }

    /** A sample for each matrix of the first product, and the sums of dz over rows into `dbias`. */
    std::vector<Sample> of_first_matrices(Sample &dbias) const {
        std::vector<Sample> all(first_matrices(), Sample(id.d_out, sampled_rows, id.d, sampled_columns));
        Row sums_of_dz(static_cast<std::size_t>(id.d_out));
        for (const std::int64_t out : all[0].rows) {
            Row weights;
            for (std::int64_t i = 0; i < id.d; i++) {
                weights.push_back(matrices.at("down").row(i, out, 1)[0]);
            }
            std::vector<Row> sums(first_matrices(), Row(static_cast<std::size_t>(id.d)));
            for (std::int64_t row = 0; row < rows(); row++) {
                const Row dy = inputs[1].row(row), n = normalized(row);
                const double dhidden = std::inner_product(dy.begin(), dy.end(), weights.begin(), 0.0);
                const auto place = static_cast<std::size_t>(out);
                const auto dz = gradient_of_sums(dhidden, inputs[2].row(row)[place], sums_up(row)[place]);
                for (std::size_t matrix = 0; matrix < sums.size(); matrix++) {
                    add_multiple(sums[matrix], dz[matrix], n);
                }
                sums_of_dz[place] += dz[0];
            }
            for (std::size_t matrix = 0; matrix < sums.size(); matrix++) {
                all[matrix].expect(sums[matrix]);
            }
        }
        dbias.expect(sums_of_dz);
        return all;
    }

    Sample of_down() const {
        Sample dweight(id.d, sampled_rows, id.d_out, sampled_columns);
        const operations::LayerActivation &activation = operations::layer_activation(form.activation);
        std::vector<Row> sums(dweight.rows.size(), Row(static_cast<std::size_t>(id.d_out)));
        for (std::int64_t row = 0; row < rows(); row++) {
            Row hidden = inputs[2].row(row);
            const Row ups = sums_up(row), dy = inputs[1].row(row);
            for (std::size_t out = 0; out < hidden.size(); out++) {
                hidden[out] = activation.at(hidden[out], form.beta) * ups[out];
            }
            for (std::size_t i = 0; i < sums.size(); i++) {
                add_multiple(sums[i], dy[static_cast<std::size_t>(dweight.rows[i])], hidden);
            }
        }
        for (const Row &sum : sums) {
            dweight.expect(sum);
        }
        return dweight;
    }

    Sample of_bias_down() const {
        Sample sample(1, 1, id.d, sampled_columns);
        Row sum(static_cast<std::size_t>(id.d));
        for (std::int64_t row = 0; row < rows(); row++) {
            add_multiple(sum, 1, inputs[1].row(row));
        }
        sample.expect(sum);
        return sample;
    }

    /** The gradient of the norm's weight and, of a LayerNorm, of its bias. */
    std::vector<Sample> of_norm() const {
        std::vector<Sample> all(bias.empty() ? 1 : 2, Sample(1, 1, id.d, sampled_columns));
        if (static_cast<double>(rows()) * static_cast<double>(id.d) * static_cast<double>(id.d_out) > most_products) {
            for (Sample &sample : all) {
                sample.rows.clear();
            }
            return all;
        }
        Row of_weight(static_cast<std::size_t>(id.d)), of_bias = of_weight;
        for (std::int64_t row = 0; row < rows(); row++) {
            const Row dnormalized = gradient_of_normalized(row);
            add_multiple(of_weight, 1, operations::values_of(through_norm(row, dnormalized).weight_terms));
            add_multiple(of_bias, 1, dnormalized);
        }
        all[0].expect(of_weight);
        if (!bias.empty()) {
            all[1].expect(of_bias);
        }
        return all;
    }

    const CaseId &id;
    const LayerForm &form;
    const std::map<std::string, PeriodicMatrix> &matrices;
    const std::vector<Matrix> &inputs;
    const Row weight, bias;
    operations::NormParameters norm;
};

/** Tensors of both calls, which keep their sums in the inputs behind x and dy. */
halyard_ffn_options options_of(const BenchmarkCase &bench_case, OperandSet &set) {
    const LayerForm &form = *bench_case.id.kernel->layer;
    halyard_ffn_options options{};
    options.norm = form.norm;
    options.eps = form.eps();
    options.norm_weight = &bench_case.weight->view;
    options.norm_bias = bench_case.bias ? &bench_case.bias->view : nullptr;
    options.activation = form.activation;
    options.bias = bench_case.parameters.vector("bias");
    options.bias_down = bench_case.parameters.vector("bias_down");
    options.residual = form.has_residual ? 1 : 0;
    options.sums = &set.inputs[2].view;
    options.sums_up = form.gated ? &set.inputs[3].view : nullptr;
    return options;
}

}  // namespace

void prepare_ffn_gradient(BenchmarkCase &bench_case) {
    const CaseId &id = bench_case.id;
    const LayerForm &form = *id.kernel->layer;
    add_layer_parameters(bench_case);
    bench_case.make_sets({{id.d, 1.5}, {id.d, 1.5}, {id.d_out, 1.5}, {form.gated ? id.d_out : 0, 1.5}}, id.d);
    pack_layer(bench_case);
    for (OperandSet &set : bench_case.sets) {
        const halyard_ffn_options options = options_of(bench_case, set);
        require(halyard_ffn(bench_case.context.get(), &set.inputs[0].view, set.layer.first, set.layer.down, &options,
                            &set.outputs[0].view));
        for (int matrix = 0; matrix < (form.gated ? 2 : 1); matrix++) {
            set.outputs.emplace_back(Dtype::f32, id.d_out, id.d);
        }
        set.outputs.emplace_back(Dtype::f32, id.d, id.d_out);
        if (form.has_bias) {
            set.outputs.emplace_back(Dtype::f32, 1, id.d_out);
            set.outputs.emplace_back(Dtype::f32, 1, id.d);
        }
        for (int vector = 0; vector < (bench_case.bias ? 2 : 1); vector++) {
            set.outputs.emplace_back(Dtype::f32, 1, id.d);
        }
    }
    bench_case.samples = Reference(bench_case).samples();
}

halyard_status call_ffn_gradient(BenchmarkCase &bench_case, OperandSet &set) {
    const LayerForm &form = *bench_case.id.kernel->layer;
    const halyard_ffn_options options = options_of(bench_case, set);
    std::vector<DLTensor> views;
    const std::size_t matrices = form.gated ? 4 : 3;  // dx among them
    for (const Matrix &output : set.outputs) {
        views.push_back(views.size() < matrices ? output.view : vector_view(output));
    }
    auto next = views.data();
    halyard_ffn_gradients gradients{};
    gradients.dx = next++;
    gradients.dweight = next++;
    gradients.dweight_up = form.gated ? next++ : nullptr;
    gradients.dweight_down = next++;
    gradients.dbias = form.has_bias ? next++ : nullptr;
    gradients.dbias_down = form.has_bias ? next++ : nullptr;
    gradients.dnorm_weight = next++;
    gradients.dnorm_bias = bench_case.bias ? next++ : nullptr;
    return halyard_ffn_backward(bench_case.context.get(), &set.inputs[0].view, set.layer.first, set.layer.down,
                                &set.inputs[1].view, &options, &gradients);
}

}  // namespace halyard::bench
