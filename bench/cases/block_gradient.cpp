// Rows of a training step of a block, forward and backward: see operands.h.
#include "slope.h"

namespace halyard::bench {
namespace {

using operations::BlockParameter;
using operations::Row;

constexpr std::int64_t sampled_rows = 4, sampled_columns = 256;

/** Tokens whose gradients are held against float64: attention has weights from the second one on. */
constexpr std::int64_t judged_tokens = 3;

DLTensor *halyard_block_gradients::*field_of(const std::string &parameter) {
    using G = halyard_block_gradients;
    static const std::map<std::string, DLTensor *G::*> fields = {
        {"q_proj", &G::q_proj},
        {"q_proj_bias", &G::q_proj_bias},
        {"k_proj", &G::k_proj},
        {"k_proj_bias", &G::k_proj_bias},
        {"v_proj", &G::v_proj},
        {"v_proj_bias", &G::v_proj_bias},
        {"o_proj", &G::o_proj},
        {"o_proj_bias", &G::o_proj_bias},
        {"gate_proj", &G::gate_proj},
        {"gate_proj_bias", &G::gate_proj_bias},
        {"up_proj", &G::up_proj},
        {"up_proj_bias", &G::up_proj_bias},
        {"down_proj", &G::down_proj},
        {"down_proj_bias", &G::down_proj_bias},
        {"attention_norm", &G::attention_norm},
        {"attention_norm_bias", &G::attention_norm_bias},
        {"ffn_norm", &G::ffn_norm},
        {"ffn_norm_bias", &G::ffn_norm_bias},
    };
    return fields.at(parameter);
}

/** x and dy are inputs; y, dx and the gradients of the parameters are outputs. */
halyard_status train(const BenchmarkCase &bench_case, OperandSet &set) {
    const halyard_context *const context = bench_case.context.get();
    const std::vector<BlockParameter> parameters = operations::block_parameters(*bench_case.id.kernel->block);
    std::vector<DLTensor> views;
    for (std::size_t i = 0; i < parameters.size(); i++) {
        const Matrix &output = set.outputs[2 + i];
        views.push_back(parameters[i].matrix ? output.view : vector_view(output));
    }
    const halyard_block_gradients gradients = block_gradients(*bench_case.id.kernel->block, views.data());
    const auto bytes = static_cast<std::int64_t>(set.saved->size());
    const halyard_status status = halyard_block_forward_saving(context, set.block.get(), &set.inputs[0].view,
                                                               set.saved->data(), bytes, &set.outputs[0].view);
    return status != HALYARD_OK
               ? status
               : halyard_block_backward(context, set.block.get(), &set.inputs[0].view, set.saved->data(), bytes,
                                        &set.inputs[1].view, &gradients, &set.outputs[1].view);
}

/** Adds what a step writes behind y, and room for what it keeps. */
void add_outputs(const BenchmarkCase &bench_case, OperandSet &set, std::int64_t tokens) {
    const BlockForm &form = *bench_case.id.kernel->block;
    set.outputs.emplace_back(Dtype::f32, tokens, form.d);
    for (const BlockParameter &each : operations::block_parameters(form)) {
        const std::string name = each.operand.name;
        if (each.matrix) {
            const PeriodicMatrix &matrix = bench_case.parameters.matrices.at(name);
            set.outputs.emplace_back(Dtype::f32, matrix.out(), matrix.in());
        } else {
            set.outputs.emplace_back(Dtype::f32, 1, bench_case.parameters.vectors.at(name)->width());
        }
    }
    std::int64_t bytes = 0;
    require(halyard_block_saved_size(set.block.get(), 1, tokens, &bytes));
    set.saved = std::make_shared<Buffer>(static_cast<std::size_t>(bytes));
}

/** The sum of y dy where x and each parameter have grown by `offset` times their way. */
double weighed(const BenchmarkCase &bench_case, const OperandSet &few, double offset) {
    std::size_t number = 0;
    const operations::BlockValues values = moved_block(bench_case, "", offset, number);
    std::vector<Row> x;
    for (std::int64_t token = 0; token < few.inputs[0].rows(); token++) {
        x.push_back(moved(few.inputs[0].row(token), offset * way_of(0)));
    }
    const operations::Matrix y = operations::block(values, x);
    double sum = 0;
    for (std::size_t token = 0; token < y.size(); token++) {
        const Row dy = few.inputs[1].row(static_cast<std::int64_t>(token));
        for (std::size_t i = 0; i < dy.size(); i++) {
            sum += y[token][i].value * dy[i];
        }
    }
    return sum;
}

/** How far the library's gradients of some tokens are from the slope of the reference, in units of all that they add to it. */
double error_of_few_tokens(const BenchmarkCase &bench_case) {
    const BlockForm &form = *bench_case.id.kernel->block;
    OperandSet few;
    few.block = bench_case.sets[0].block;
    for (const unsigned seed : {1u, 2u}) {
        few.inputs.emplace_back(Dtype::f32, judged_tokens, form.d).fill_random(seed, 0.0, 1.5);
    }
    few.outputs.emplace_back(Dtype::f32, judged_tokens, form.d);
    add_outputs(bench_case, few, judged_tokens);
    require(train(bench_case, few));

    Growth growth;
    growth.add(few.outputs[1], way_of(0), true, [&](std::int64_t row) { return few.inputs[0].row(row); });
    const Parameters &parameters = bench_case.parameters;
    std::size_t number = 0;
    for (const BlockParameter &each : operations::block_parameters(form)) {
        const std::string name = each.operand.name;
        const bool is_vector = static_cast<bool>(each.vector);
        const Matrix &gradient = few.outputs[2 + number++];
        growth.add(gradient, way_of(number), is_vector, [&](std::int64_t row) {
            return is_vector ? parameters.values(name) : parameters.matrices.at(name).row(row);
        });
    }
    return growth.error(weighed(bench_case, few, -slope_step), weighed(bench_case, few, slope_step));
}

/** What the library computes, which peers must compute too. */
std::vector<Sample> samples_of(const BenchmarkCase &bench_case, double known_error) {
    const std::vector<BlockParameter> parameters = operations::block_parameters(*bench_case.id.kernel->block);
    std::vector<Sample> samples;
    for (std::size_t i = 0; i < bench_case.sets[0].outputs.size(); i++) {
        const Matrix &output = bench_case.sets[0].outputs[i];
        Sample &sample = samples.emplace_back(output.rows(), sampled_rows, output.width(), sampled_columns);
        sample.known_error = known_error;
        // A bias of all keys moves the scores of a query alike: its gradient is 0 but for roundings, which nobody shares.
        if (i >= 2 && parameters[i - 2].operand.name == std::string("k_proj_bias")) {
            sample.rows.clear();
        }
        for (const std::int64_t row : sample.rows) {
            sample.expect(output.row(row));
        }
    }
    return samples;
}

}  // namespace

halyard_block_gradients block_gradients(const BlockForm &form, DLTensor *views) {
    halyard_block_gradients gradients{};
    gradients.layout = HALYARD_WEIGHT_OUT_IN;
    for (const BlockParameter &each : operations::block_parameters(form)) {
        gradients.*field_of(each.operand.name) = views++;
    }
    return gradients;
}

void prepare_block_gradient(BenchmarkCase &bench_case) {
    const CaseId &id = bench_case.id;
    const BlockForm &form = *id.kernel->block;
    add_block(bench_case.parameters, "", form, id.dtype, 0);
    bench_case.make_sets({{form.d, 1.5}, {form.d, 1.5}}, form.d);
    for (OperandSet &set : bench_case.sets) {
        set.block = make_block(bench_case, "");
        add_outputs(bench_case, set, id.rows);
    }
    require(train(bench_case, bench_case.sets[0]));
    bench_case.samples = samples_of(bench_case, error_of_few_tokens(bench_case));
}

halyard_status call_block_gradient(BenchmarkCase &bench_case, OperandSet &set) {
    return train(bench_case, set);
}

}  // namespace halyard::bench
