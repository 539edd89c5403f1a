// See work.h.
#include "work.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>

#include "layer.h"

namespace halyard::bench {

// ---- Matrix ----

Matrix::Matrix(Dtype dtype, std::int64_t rows, std::int64_t width)
    : type(dtype), shape{rows, width}, buffer(static_cast<std::size_t>(rows * width) * tests::size_of(dtype)) {
    describe();
}

Matrix::Matrix(Matrix &&other) noexcept
    : type(other.type), shape{other.shape[0], other.shape[1]}, buffer(std::move(other.buffer)) {
    describe();
}

void Matrix::describe() {
    view = {buffer.data(), {kDLCPU, 0}, 2, tests::dlpack_type(type), shape, nullptr, 0};
}

void Matrix::fill_random(unsigned seed, double mean, double deviation) {
    constexpr std::size_t period = random_period;
    std::mt19937 generator(seed);
    std::normal_distribution<double> normal(mean, deviation);
    const std::size_t size = tests::size_of(type), count = buffer.size() / size;
    for (std::size_t i = 0; i < std::min(period, count); i++) {
        const std::uint32_t bits = tests::encode(type, normal(generator));
        std::memcpy(buffer.data() + i * size, &bits, size);
    }
    for (std::size_t i = period; i < count; i += period) {
        std::memcpy(buffer.data() + i * size, buffer.data(), std::min(period, count - i) * size);
    }
}

tests::Row Matrix::row(std::int64_t index) const {
    const std::size_t size = tests::size_of(type);
    const char *start = buffer.data() + static_cast<std::size_t>(index * width()) * size;
    tests::Row values(static_cast<std::size_t>(width()));
    for (std::size_t i = 0; i < values.size(); i++) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, start + i * size, size);
        values[i] = tests::decode(type, bits);
    }
    return values;
}

// ---- WorkId ----

std::string WorkId::name() const {
    const std::string shape =
        std::to_string(rows) + "x" + std::to_string(d) + (kernel->layer ? "x" + std::to_string(d_out) : "");
    return kernel->name + "/" + tests::name_of(dtype) + "/" + shape + "/" + (cold ? "cold" : "hot") + "/" +
           std::to_string(threads) + "t";
}

Stream WorkId::stream() const {
    const std::size_t from = tests::size_of(dtype), to = tests::size_of(output_dtype());
    return from == to ? kernel->stream : from > to ? stream_halve : stream_double;
}

std::size_t WorkId::weight_bytes() const {
    const LayerForm &form = *kernel->layer;
    return static_cast<std::size_t>(form.matrices() * d * d_out) * tests::size_of(dtype);
}

double WorkId::flops() const {
    return 2.0 * kernel->layer->matrices() * static_cast<double>(rows) * static_cast<double>(d * d_out);
}

std::size_t WorkId::set_count(std::size_t cold_set) const {
    if (!cold) {
        return 1;
    }
    const std::size_t set = kernel->layer ? weight_bytes() : bytes_moved();
    return std::max<std::size_t>(2, (cold_set + set - 1) / set);
}

std::size_t WorkId::bytes_moved() const {
    if (kernel->layer) {
        const std::int64_t residual = kernel->layer->has_residual && !kernel->layer->is_ffn ? d_out : 0;
        return weight_bytes() +
               static_cast<std::size_t>(rows * (d + residual + output_width())) * tests::size_of(dtype);
    }
    const std::size_t read = tests::size_of(dtype) * static_cast<std::size_t>(kernel->inputs * kernel->input_width);
    const std::size_t written = tests::size_of(output_dtype()) * static_cast<std::size_t>(kernel->outputs);
    return static_cast<std::size_t>(rows * d) * (read + written);
}

// ---- Work ----

Work::Work(const WorkId &work_id, std::size_t cold_set, halyard_isa isa) : id(work_id) {
    halyard_context *made = nullptr;
    if (halyard_context_create(&made) != HALYARD_OK) {
        throw std::runtime_error(halyard_last_error());
    }
    context.reset(made, halyard_context_destroy);
    if (halyard_context_set_num_threads(made, id.threads) != HALYARD_OK ||
        halyard_context_set_max_isa(made, isa) != HALYARD_OK) {
        throw std::runtime_error(halyard_last_error());
    }

    const Kernel &kernel = *id.kernel;
    const std::size_t count = id.set_count(cold_set);
    for (std::size_t set = 0; set < count; set++) {
        Operands operands;
        for (int i = 0; i < kernel.inputs; i++) {
            const bool is_residual = kernel.layer && i == 1;
            operands.inputs.emplace_back(id.dtype, id.rows, is_residual ? id.d_out : id.d * kernel.input_width);
            operands.inputs.back().fill_random(static_cast<unsigned>(i) + 1, 0.0, 1.5);
        }
        for (int i = 0; i < kernel.outputs; i++) {
            operands.outputs.emplace_back(id.output_dtype(), id.rows, id.output_width());
        }
        sets.push_back(std::move(operands));
    }
    const auto make_vector = [&](unsigned seed, double mean) {
        auto vector = std::make_unique<Matrix>(id.dtype, 1, id.d);
        vector->fill_random(seed, mean, 0.1);
        vector->view.ndim = 1;
        vector->view.shape++;
        return vector;
    };
    if (kernel.has_weight) {
        weight = make_vector(100, 1.0);
    }
    if (kernel.has_bias) {
        bias = make_vector(101, 0.0);
    }
    if (kernel.layer) {
        const auto made_layer = std::make_shared<Layer>(*this);
        made_layer->pack(*this);
        layer = made_layer;
    }
}

void Work::call(std::size_t set) {
    if (id.kernel->call(*this, sets[set]) != HALYARD_OK) {
        throw std::runtime_error(halyard_last_error());
    }
}

void Work::spoil_outputs() {
    for (const Matrix &output : sets[0].outputs) {
        std::memset(output.data(), 0xff, output.bytes());
    }
}

std::vector<std::int64_t> Work::sampled_rows() const {
    constexpr std::int64_t elements = 1 << 18;
    const std::int64_t count = std::clamp<std::int64_t>(elements / id.d, 1, id.rows);
    std::vector<std::int64_t> rows;
    for (std::int64_t i = 0; i < count; i++) {
        rows.push_back(count == 1 ? 0 : i * (id.rows - 1) / (count - 1));
    }
    return rows;
}

double Work::worst_error() const {
    const Operands &set = sets[0];
    if (layer) {
        return layer->worst_error(set.outputs[0]);
    }
    const tests::Row weight_values = weight ? weight->row(0) : tests::Row();
    const tests::Row bias_values = bias ? bias->row(0) : tests::Row();
    double worst = 0;
    for (const std::int64_t row : sampled_rows()) {
        std::vector<tests::Row> inputs;
        for (const Matrix &input : set.inputs) {
            inputs.push_back(input.row(row));
        }
        const std::vector<tests::Row> expected = id.kernel->reference(inputs, weight_values, bias_values);
        for (std::size_t k = 0; k < expected.size(); k++) {
            const tests::Row got = set.outputs[k].row(row);
            double largest = std::numeric_limits<double>::min(), error = 0;
            for (std::size_t i = 0; i < got.size(); i++) {
                largest = std::max(largest, std::fabs(expected[k][i]));
                error = std::isnan(got[i]) ? std::numeric_limits<double>::infinity()
                                           : std::max(error, std::fabs(got[i] - expected[k][i]));
                if (std::isinf(error)) {
                    return error;
                }
            }
            worst = std::max(worst, error / largest);
        }
    }
    return worst;
}

double Work::tolerance() const {
    const double unit = id.output_dtype() == Dtype::f32 ? 0x1p-24 : id.output_dtype() == Dtype::f16 ? 0x1p-11 : 0x1p-8;
    return 1e-5 + 2 * unit;
}

}  // namespace halyard::bench
