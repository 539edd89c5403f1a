// See work.h.
#include "work.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "layer.h"

namespace halyard::bench {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

/** The distance of neighbouring values of the type where `exact` lies. */
double unit_in_last_place(double exact, Dtype dtype) {
    const int fraction_bits = dtype == Dtype::f32 ? 23 : dtype == Dtype::f16 ? 10 : 7;
    const int least_exponent = dtype == Dtype::f16 ? -14 : -126;
    const int exponent = exact == 0 ? least_exponent : std::max(std::ilogb(exact), least_exponent);
    return std::ldexp(1.0, exponent - fraction_bits);
}

}  // namespace

// ---- WorkId ----

std::string WorkId::name() const {
    std::string shape = std::to_string(rows) + "x" + std::to_string(d);
    if (kernel->layer) {
        shape += "x" + std::to_string(d_out);
    } else if (has_heads()) {
        shape = decodes() ? "decode" + std::to_string(rows) + "x" + std::to_string(cached)
                          : "prompt" + std::to_string(rows);
    }
    return kernel->name + "/" + tests::name_of(dtype) + "/" + shape + "/" + (cold ? "cold" : "hot") + "/" +
           std::to_string(threads) + "t";
}

Stream WorkId::stream() const {
    const std::size_t from = tests::size_of(dtype), to = tests::size_of(output_dtype());
    return from == to ? kernel->stream : from > to ? stream_halve : stream_double;
}

std::size_t WorkId::weight_bytes() const {
    std::int64_t elements = 0;
    if (kernel->layer) {
        elements = kernel->layer->matrices() * d * d_out;
    } else if (kernel->block) {
        const BlockForm &form = *kernel->block;
        elements = form.layers * form.block_elements() + form.vocabulary * form.d;
    }
    return static_cast<std::size_t>(elements) * tests::size_of(dtype);
}

std::size_t WorkId::cache_bytes() const {
    const std::int64_t layers = kernel->block ? kernel->block->layers : 1;
    const std::int64_t elements = 2 * layers * sequences() * (cached + tokens()) * heads().kv_width();
    return static_cast<std::size_t>(elements) * tests::size_of(dtype);
}

double WorkId::flops() const {
    if (kernel->layer) {
        return 2.0 * kernel->layer->matrices() * static_cast<double>(rows) * static_cast<double>(d * d_out);
    }
    // The query at position p sees p + 1 positions.
    const auto first = static_cast<double>(cached + 1), last = static_cast<double>(cached + tokens());
    const double seen = static_cast<double>(rows) * (first + last) / 2;
    const double attention = 4 * seen * static_cast<double>(heads().query_width());
    if (kernel->attention) {
        return attention;
    }
    const BlockForm &form = *kernel->block;
    const auto block = static_cast<double>(form.block_elements());
    // A model's logits are those of the last token of each sequence.
    return static_cast<double>(form.layers) * (attention + 2 * static_cast<double>(rows) * block) +
           2 * static_cast<double>(sequences() * form.vocabulary * form.d);
}

std::size_t WorkId::set_count(std::size_t cold_set) const {
    if (!cold) {
        return 1;
    }
    const std::size_t set = kernel->layer ? weight_bytes() : bytes_moved();
    const std::size_t least = has_heads() && set >= cold_set ? 1 : 2;  // one such set goes past every cache by itself
    return std::max(least, (cold_set + set - 1) / set);
}

std::size_t WorkId::bytes_moved() const {
    const std::size_t size = tests::size_of(dtype);
    if (kernel->attention) {
        return cache_bytes() + static_cast<std::size_t>(2 * rows * heads().query_width()) * size;
    }
    if (kernel->block) {
        return weight_bytes() + cache_bytes() + static_cast<std::size_t>(2 * rows * kernel->block->d) * size;
    }
    if (kernel->layer) {
        const std::int64_t residual = kernel->layer->has_residual && !kernel->layer->is_ffn ? d_out : 0;
        return weight_bytes() + static_cast<std::size_t>(rows * (d + residual + output_width())) * size;
    }
    const std::size_t read = size * static_cast<std::size_t>(kernel->inputs * kernel->input_width);
    const std::size_t written = tests::size_of(output_dtype()) * static_cast<std::size_t>(kernel->outputs);
    return static_cast<std::size_t>(rows * d) * (read + written);
}

// ---- Work ----

Work::Work(const WorkId &work_id, std::size_t cold_bytes, halyard_isa isa, Side side)
    : id(work_id), cold_set(cold_bytes) {
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
    if (kernel.prepare) {
        kernel.prepare(*this);
        return;
    }
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
        const auto made_layer = std::make_shared<Layer>(id);
        if (side == Side::ours) {
            made_layer->pack(*this);
        }
        sample = std::make_unique<Sample>(made_layer->sample(*this));
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

Accuracy Work::accuracy() const {
    const Operands &set = sets[0];
    if (sample) {
        return {sample->worst_error(set.outputs[0]), -1};
    }
    const tests::Row weight_values = weight ? weight->row(0) : tests::Row();
    const tests::Row bias_values = bias ? bias->row(0) : tests::Row();
    Accuracy worst{0, 0};
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
                const double exact = expected[k][i];
                const double distance = std::isnan(got[i]) ? infinite : std::fabs(got[i] - exact);
                if (std::isinf(distance)) {
                    return {infinite, infinite};
                }
                largest = std::max(largest, std::fabs(exact));
                error = std::max(error, distance);
                worst.ulps = std::max(worst.ulps, distance / unit_in_last_place(exact, set.outputs[k].dtype()));
            }
            worst.error = std::max(worst.error, error / largest);
        }
    }
    return worst;
}

double Work::tolerance() const {
    const double unit = id.output_dtype() == Dtype::f32 ? 0x1p-24 : id.output_dtype() == Dtype::f16 ? 0x1p-11 : 0x1p-8;
    return 1e-5 + 2 * unit;
}

double Work::peer_tolerance() const {
    const bool rounds = id.is_model() && id.dtype != Dtype::f32;
    return rounds ? tolerance() * std::sqrt(static_cast<double>(id.kernel->block->layers)) : tolerance();
}

}  // namespace halyard::bench
