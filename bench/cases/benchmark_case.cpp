// See benchmark_case.h.
#include "benchmark_case.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace halyard::bench {

// ---- CaseId ----

std::string CaseId::name() const {
    std::string shape = std::to_string(rows) + "x" + std::to_string(d);
    if (kernel->layer) {
        shape += "x" + std::to_string(d_out);
    } else if (has_heads()) {
        shape = decodes()    ? "decode" + std::to_string(rows) + "x" + std::to_string(cached)
                : length > 0 ? std::to_string(sequences()) + "x" + std::to_string(length)
                             : "prompt" + std::to_string(rows);
    }
    return kernel->name + "/" + operations::name_of(dtype) + "/" + shape + "/" + (cold ? "cold" : "hot") + "/" +
           std::to_string(threads) + "t";
}

Stream CaseId::stream() const {
    const std::size_t from = operations::size_of(dtype) * static_cast<std::size_t>(kernel->input_width);
    const std::size_t to = operations::size_of(output_dtype()) * static_cast<std::size_t>(kernel->output_width);
    const bool of_one_width = kernel->input_width == 1;
    return has_roofline()                        ? stream_read
           : kernel->outputs >= 2                ? stream_read2_write2
           : kernel->inputs >= 2 && of_one_width ? stream_read2_write1
           : from == to                          ? stream_copy
           : from > to                           ? stream_halve
                                                 : stream_double;
}

Cost CaseId::cost() const {
    if (kernel->tensors != nullptr) {
        return kernel->tensors->cost(dtype, operations::Sizes::of_rows({rows, d}));
    }
    if (kernel->layer) {
        Cost cost = operations::layer_operation({"", *kernel->layer}).cost(dtype, {{rows}, d, d_out});
        if (kernel->is_gradient) {
            // Two products of the size of each; dy in y's place, sums, dx and the gradients of the matrices besides.
            const std::int64_t read = kernel->layer->gated ? 2 * d_out : kernel->layer->is_ffn ? d_out : 0;
            cost.flops *= 2;
            cost.bytes += static_cast<std::size_t>(rows * (d + read)) * operations::size_of(dtype) + cost.weight_bytes;
        }
        return cost;
    }
    const operations::Span span = {sequences(), tokens(), cached + tokens()};
    if (kernel->attention) {
        Cost cost = operations::attention_cost(*kernel->attention, span, dtype);
        if (kernel->is_gradient) {
            // Five products in the place of two; dy and the gradients besides.
            cost.flops *= 2.5;
            cost.bytes *= 2;
        }
        return cost;
    }
    if (kernel->block) {
        Cost cost = kernel->block->cost(span, dtype);
        if (is_training_step()) {
            // All tokens have logits. Matrices are read twice, their gradients written and read for their norm, and AdamW reads four
            // tensors and writes three.
            cost.flops += 2 * static_cast<double>((rows - sequences()) * kernel->block->vocabulary * d);
            cost.flops *= 3;
            cost.bytes *= 11;
        } else if (kernel->is_gradient) {
            // Each product and the two of its gradients; matrices are read twice, and their gradients written.
            cost.flops *= 3;
            cost.bytes *= 3;
        }
        return cost;
    }
    Cost cost;
    if (kernel->vocabulary > 0) {
        // The table is written; each row of dy is read, and one of the table read and written.
        cost.bytes = static_cast<std::size_t>((kernel->vocabulary + 3 * rows) * d) * operations::size_of(dtype);
        cost.flops = static_cast<double>(rows * d);
        return cost;
    }
    const std::size_t read =
        operations::size_of(dtype) * static_cast<std::size_t>(kernel->inputs * kernel->input_width);
    cost.bytes = static_cast<std::size_t>(rows * d) *
                 (read + operations::size_of(output_dtype()) * static_cast<std::size_t>(kernel->outputs));
    return cost;
}

double CaseId::int8_flops() const {
    if (!kernel->has_int8_products()) {
        return 0;
    }
    const operations::Span span = {sequences(), tokens(), cached + tokens()};
    return kernel->layer ? flops()
                         : flops() - static_cast<double>(kernel->block->layers) *
                                         operations::attention_cost(heads(), span, dtype).flops;
}

std::size_t CaseId::set_count(std::size_t cold_set) const {
    if (!cold || is_training_step()) {  // what a step leaves is what the next one begins with
        return 1;
    }
    const std::size_t set = kernel->layer ? weight_bytes() : bytes_moved();
    const std::size_t least = has_heads() && set >= cold_set ? 1 : 2;  // one such set goes past every cache by itself
    return std::max(least, (cold_set + set - 1) / set);
}

// ---- BenchmarkCase ----

void require(halyard_status status) {
    if (status != HALYARD_OK) {
        throw std::runtime_error(halyard_last_error());
    }
}

BenchmarkCase::BenchmarkCase(const CaseId &case_id, std::size_t cold_bytes, halyard_isa isa)
    : id(case_id), cold_set(cold_bytes) {
    halyard_context *made = nullptr;
    require(halyard_context_create(&made));
    context.reset(made, halyard_context_destroy);
    require(halyard_context_set_num_threads(made, id.threads));
    require(halyard_context_set_max_isa(made, isa));
    if (id.kernel->block && id.kernel->block->is_quantized() && id.dtype == Dtype::bf16) {
        require(halyard_context_set_products(made, HALYARD_PRODUCTS_BF16));
    }

    const Kernel &kernel = *id.kernel;
    if (kernel.has_int8_products()) {
        require(halyard_context_set_products(made, HALYARD_PRODUCTS_INT8));
    }
    if (kernel.has_weight) {
        weight = random_vector(id.dtype, id.d, 100, 1.0);
    }
    if (kernel.has_bias) {
        bias = random_vector(id.dtype, id.d, 101, 0.0);
    }
    if (kernel.prepare) {
        kernel.prepare(*this);
        return;
    }
    std::vector<Input> inputs;
    for (const std::size_t input : kernel.tensors->with_role(operations::Role::input)) {
        inputs.push_back({id.d * kernel.tensors->operands[input].times(), 1.5});
    }
    make_sets(inputs, id.d * kernel.output_width);
    for (OperandSet &set : sets) {
        if (kernel.operation == "softmax_backward") {  // y is a softmax: of other numbers the sums cancel
            DLTensor &y = set.inputs[0].view;
            require(halyard_softmax(made, &y, 1.0f, &y));
        }
        for (std::size_t i = static_cast<std::size_t>(kernel.outputs); i < set.outputs.size(); i++) {
            set.outputs[i].view = vector_view(set.outputs[i]);
        }
        for (const Matrix *matrix : matrices(set)) {
            set.arguments.push_back(const_cast<DLTensor *>(&matrix->view));
        }
    }
}

void BenchmarkCase::make_sets(const std::vector<Input> &inputs, std::int64_t output_width) {
    for (std::size_t count = id.set_count(cold_set); count > 0; count--) {
        OperandSet &operands = sets.emplace_back();
        for (const auto &[width, deviation] : inputs) {
            if (width > 0) {
                operands.inputs.emplace_back(id.dtype, id.rows, width)
                    .fill_random(static_cast<unsigned>(operands.inputs.size()), 0.0, deviation);
            }
        }
        for (int i = 0; i < id.kernel->outputs; i++) {
            operands.outputs.emplace_back(id.output_dtype(), id.rows, output_width);
        }
        for (int i = 0; i < id.kernel->row_sums; i++) {
            operands.outputs.emplace_back(Dtype::f32, 1, output_width);
        }
    }
}

std::vector<const Matrix *> BenchmarkCase::matrices(const OperandSet &set) const {
    std::vector<const Matrix *> all;
    for (const Matrix &input : set.inputs) {
        all.push_back(&input);
    }
    for (const auto *parameter : {&weight, &bias}) {
        if (*parameter) {
            all.push_back(parameter->get());
        }
    }
    for (const Matrix &output : set.outputs) {
        all.push_back(&output);
    }
    return all;
}

void BenchmarkCase::call(std::size_t set) {
    require(id.kernel->call(*this, sets[set]));
}

void BenchmarkCase::spoil_outputs() {
    for (const Matrix &output : sets[0].outputs) {
        std::memset(output.data(), 0xff, output.bytes());
    }
    begin_steps();
}

void BenchmarkCase::begin_steps() {
    const std::vector<std::size_t> &state = id.kernel->state;
    for (OperandSet &set : sets) {
        for (std::size_t i = 0; i < state.size(); i++) {
            std::memcpy(set.outputs[i].data(), set.inputs[state[i]].data(), set.outputs[i].bytes());
        }
    }
}

Accuracy BenchmarkCase::accuracy() const {
    const OperandSet &set = sets[0];
    if (!samples.empty()) {
        double worst = 0;
        for (std::size_t i = 0; i < samples.size(); i++) {
            worst = std::max(worst, samples[i].worst_error(set.outputs[i]));
        }
        return {worst, -1};
    }
    const operations::Operation &operation = *id.kernel->tensors;
    const std::vector<const Matrix *> operands = matrices(set);
    Accuracy worst{0, 0};
    constexpr std::int64_t sampled_elements = 1 << 18;
    const std::vector<std::int64_t> sampled = spread(id.rows, std::max<std::int64_t>(sampled_elements / id.d, 1));
    std::vector<operations::Rows> values(operands.size());
    for (std::size_t i = 0; i < operands.size(); i++) {
        const operations::Role role = operation.operands[i].role;
        if (role == operations::Role::parameter) {
            values[i] = {operands[i]->row(0)};
        }
        for (std::size_t n = 0; role == operations::Role::input && n < sampled.size(); n++) {
            values[i].push_back(operands[i]->row(sampled[n]));
        }
    }
    const std::vector<operations::Matrix> expected =
        operation.reference(values, operations::Sizes::of_rows({id.rows, id.d}), id.kernel->scalars.data(), id.dtype);
    const auto judge = [&](std::size_t output, std::int64_t row, const operations::ExpectedRow &of_row) {
        worst.add(set.outputs[output].row(row), operations::values_of(of_row), set.outputs[output].dtype());
    };
    const auto by_row = static_cast<std::size_t>(id.kernel->outputs);
    for (std::size_t k = 0; k < by_row; k++) {
        for (std::size_t n = 0; n < sampled.size(); n++) {
            judge(k, sampled[n], expected[k][n]);
        }
    }
    // Sums over rows are judged where all rows are.
    for (std::size_t k = by_row; k < expected.size() && sampled.size() == static_cast<std::size_t>(id.rows); k++) {
        judge(k, 0, expected[k][0]);
    }
    return worst;
}

double BenchmarkCase::tolerance() const {
    if (id.kernel->has_int8_products()) {
        return peer_tolerance();
    }
    const double rounding = 1e-5 + 2 * operations::unit_roundoff(id.output_dtype());
    // A model is compared with one that rounds nothing.
    const bool rounds = id.is_model() && id.dtype != Dtype::f32;
    return rounds ? rounding * std::sqrt(static_cast<double>(id.kernel->block->layers)) : rounding;
}

double BenchmarkCase::peer_tolerance() const {
    const bool quantized = (id.kernel->layer && id.kernel->layer->is_quantized()) ||
                           (id.kernel->block && id.kernel->block->is_quantized());
    if (quantized) {
        const auto layers = static_cast<double>(id.kernel->block ? id.kernel->block->layers : 1);
        return 0x1p-6 * std::sqrt(layers);  // peers quantize the activations too, to 8 bits
    }
    return id.is_training_step() ? tolerance() * std::sqrt(static_cast<double>(id.kernel->block->layers)) : tolerance();
}

}  // namespace halyard::bench
