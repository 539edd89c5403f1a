// See block.h.
#include "block.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "layer.h"

namespace halyard::bench {
namespace {

constexpr unsigned first_seed = 1000, seeds_per_layer = 32, bias_seed = 10, norm_seed = 20, norm_bias_seed = 24;
constexpr unsigned x_seed = 400;
constexpr std::int64_t sampled_rows = 3, sampled_columns = 256;

/** The rows of a prompt's x repeat after so many, which spares the reference the products of the others. No tile of
 * rows divides it. */
constexpr std::int64_t distinct_rows = 13;

void require(halyard_status status) {
    if (status != HALYARD_OK) {
        throw std::runtime_error(halyard_last_error());
    }
}

std::unique_ptr<Matrix> random_vector(Dtype dtype, std::int64_t width, unsigned seed, double mean) {
    auto vector = std::make_unique<Matrix>(dtype, 1, width);
    vector->fill_random(seed, mean, 0.1);
    vector->view = vector_view(*vector);
    return vector;
}

const DLTensor *view_of(const std::unique_ptr<Matrix> &matrix) {
    return matrix ? &matrix->view : nullptr;
}

tests::Row row_of(const std::unique_ptr<Matrix> &matrix) {
    return matrix ? matrix->row(0) : tests::Row();
}

tests::Row sum(tests::Row a, const tests::Row &b) {
    for (std::size_t i = 0; i < a.size(); i++) {
        a[i] += b[i];
    }
    return a;
}

}  // namespace

Block::Block(const BlockForm &of_form, Dtype dtype, unsigned layer) : form(of_form) {
    const unsigned seed = first_seed + seeds_per_layer * layer;
    const std::int64_t queries = form.heads.query_width(), kv = form.heads.kv_width();
    const std::int64_t shapes[part_count][2] = {{queries, form.d},  {kv, form.d},        {kv, form.d},
                                                {form.d, queries},  {form.d_ff, form.d}, {form.d_ff, form.d},
                                                {form.d, form.d_ff}};
    for (unsigned part = 0; part < part_count; part++) {
        const auto [out, in] = shapes[part];
        matrices.emplace_back(dtype, out, in, seed + part, 1 / std::sqrt(static_cast<double>(in)));
        if (form.has_bias && has(static_cast<Part>(part))) {
            biases[part] = random_vector(dtype, out, seed + bias_seed + part, 0);
        }
    }
    for (unsigned norm = 0; norm < norm_count; norm++) {
        norm_weights[norm] = random_vector(dtype, form.d, seed + norm_seed + norm, 1);
        if (form.norm == HALYARD_NORM_LAYER) {
            norm_biases[norm] = random_vector(dtype, form.d, seed + norm_bias_seed + norm, 0);
        }
    }
}

halyard_block_config block_config(const BlockForm &form, std::int64_t max_positions) {
    halyard_block_config config{};
    require(halyard_block_config_preset(form.preset, &config));
    config.hidden_size = form.d;
    config.intermediate_size = form.d_ff;
    config.num_attention_heads = form.heads.heads;
    config.num_key_value_heads = form.heads.kv_heads;
    config.head_dim = form.heads.head_dim;
    config.norm = form.norm;
    config.rms_norm_eps = form.norm == HALYARD_NORM_RMS ? rms_norm_eps : layer_norm_eps;
    config.hidden_act = form.activation;
    config.gated_mlp = form.gated ? 1 : 0;
    config.rope.rope_theta = form.rope_theta;
    config.max_position_embeddings = max_positions;
    return config;
}

std::shared_ptr<const halyard_block> Block::make(const Work &work) const {
    std::vector<std::unique_ptr<Matrix>> sources(part_count);
    const DLTensor *views[part_count] = {};
    for (unsigned part = 0; part < part_count; part++) {
        if (has(static_cast<Part>(part))) {
            sources[part] = std::make_unique<Matrix>(matrices[part].whole());
            views[part] = &sources[part]->view;
        }
    }
    halyard_block_weights weights{};
    weights.layout = HALYARD_WEIGHT_OUT_IN;
    weights.q_proj = views[q];
    weights.k_proj = views[k];
    weights.v_proj = views[v];
    weights.o_proj = views[o];
    weights.gate_proj = views[gate];
    weights.up_proj = views[up];
    weights.down_proj = views[down];
    weights.q_proj_bias = view_of(biases[q]);
    weights.k_proj_bias = view_of(biases[k]);
    weights.v_proj_bias = view_of(biases[v]);
    weights.o_proj_bias = view_of(biases[o]);
    weights.up_proj_bias = view_of(biases[up]);
    weights.down_proj_bias = view_of(biases[down]);
    weights.attention_norm = view_of(norm_weights[before_attention]);
    weights.attention_norm_bias = view_of(norm_biases[before_attention]);
    weights.ffn_norm = view_of(norm_weights[before_ffn]);
    weights.ffn_norm_bias = view_of(norm_biases[before_ffn]);

    const halyard_block_config config = block_config(form, work.id.cached + work.id.tokens());
    halyard_block *made = nullptr;
    require(halyard_block_create(work.context.get(), &config, &weights, &made));
    return {made, [made](const halyard_block *) { halyard_block_destroy(made); }};
}

void Block::prepare(Work &work) {
    const WorkId &id = work.id;
    Matrix few(id.dtype, std::min(id.rows, distinct_rows), form.d);
    few.fill_random(x_seed, 0.0, 1.5);
    const std::size_t row_bytes = few.bytes() / static_cast<std::size_t>(few.rows());
    for (std::size_t i = 0; i < id.set_count(work.cold_set); i++) {
        Operands operands;
        Matrix &x = operands.inputs.emplace_back(id.dtype, id.rows, form.d);
        for (std::int64_t row = 0; row < id.rows; row++) {
            std::memcpy(x.data() + static_cast<std::size_t>(row) * row_bytes,
                        few.data() + static_cast<std::size_t>(row % few.rows()) * row_bytes, row_bytes);
        }
        operands.outputs.emplace_back(id.dtype, id.rows, form.d);
        operands.block = make(work);
        work.sets.push_back(std::move(operands));
    }
    if (id.decodes()) {
        past = std::make_unique<History>(id);
        past->make_caches(work);
    }
    work.sample = std::make_unique<Sample>(sample(work));
}

// ---- float64 ----

tests::Row Block::linear(Part part, const tests::Row &x) const {
    const tests::Row bias = row_of(biases[part]);
    tests::Row y(static_cast<std::size_t>(matrices[part].out()));
    for (std::size_t i = 0; i < y.size(); i++) {
        y[i] = matrices[part].dot(x, static_cast<std::int64_t>(i)) + (bias.empty() ? 0 : bias[i]);
    }
    return y;
}

tests::Row Block::normalized(Norm norm, const tests::Row &x) const {
    return normalize(form.norm, x, row_of(norm_weights[norm]), row_of(norm_biases[norm]));
}

Block::KeyValue Block::project(const tests::Row &x) const {
    const tests::Row inner = normalized(before_attention, x);
    return {linear(k, inner), linear(v, inner)};
}

tests::Row Block::rotate(tests::Row heads, std::int64_t position) const {
    if (form.rope_theta == 0) {
        return heads;
    }
    const auto dim = static_cast<std::size_t>(form.heads.head_dim), half = dim / 2;
    for (std::size_t i = 0; i < half; i++) {
        const double frequency = std::pow(form.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
        const double angle = static_cast<double>(position) * frequency;
        const double cosine = std::cos(angle), sine = std::sin(angle);
        for (std::size_t head = 0; head < heads.size(); head += dim) {
            double &a = heads[head + i], &b = heads[head + i + half];
            const double turned = a * cosine - b * sine;
            b = b * cosine + a * sine;
            a = turned;
        }
    }
    return heads;
}

tests::Row Block::forward(const tests::Row &x, std::int64_t position, const RowAt &keys, const RowAt &values,
                          const std::vector<std::int64_t> &columns) const {
    const tests::Row query = rotate(linear(q, normalized(before_attention, x)), position);
    const tests::Row middle = sum(linear(o, attend(form.heads, query, position + 1, keys, values)), x);
    const tests::Row inner = normalized(before_ffn, middle);
    tests::Row hidden = linear(form.gated ? gate : up, inner);
    for (double &each : hidden) {
        each = activate(form.activation, each);
    }
    if (form.gated) {
        const tests::Row factor = linear(up, inner);
        std::transform(hidden.begin(), hidden.end(), factor.begin(), hidden.begin(), std::multiplies<>());
    }
    const tests::Row bias = row_of(biases[down]);
    tests::Row y;
    for (const std::int64_t column : columns) {
        const auto i = static_cast<std::size_t>(column);
        y.push_back(middle[i] + matrices[down].dot(hidden, column) + (bias.empty() ? 0 : bias[i]));
    }
    return y;
}

Sample Block::sample(const Work &work) const {
    const WorkId &id = work.id;
    const Matrix &x = work.sets[0].inputs[0];
    std::vector<KeyValue> projected;  // of the distinct rows
    for (std::int64_t row = 0; row < std::min(id.rows, distinct_rows); row++) {
        projected.push_back(project(x.row(row)));
    }
    Sample sample;
    sample.rows = spread(id.rows, sampled_rows);
    sample.columns = spread(form.d, sampled_columns);
    for (const std::int64_t row : sample.rows) {
        // Rows are the sequences of a decode, the positions of a prompt.
        const auto at = [&](std::int64_t position) -> const KeyValue & {
            return projected[static_cast<std::size_t>((id.decodes() ? row : position) %
                                                      static_cast<std::int64_t>(projected.size()))];
        };
        const RowAt keys = [&](std::int64_t position) {
            return position < id.cached ? past->keys().row(row * id.cached + position)
                                        : rotate(at(position).key, position);
        };
        const RowAt values = [&](std::int64_t position) {
            return position < id.cached ? past->values().row(row * id.cached + position) : at(position).value;
        };
        sample.expected.push_back(forward(x.row(row), id.decodes() ? id.cached : row, keys, values, sample.columns));
    }
    return sample;
}

halyard_status call_block(Work &work, Operands &set) {
    const WorkId &id = work.id;
    const Matrix &x = set.inputs[0], &y = set.outputs[0];
    // [sequences, tokens, d]
    std::int64_t shape[3] = {id.sequences(), id.tokens(), x.width()};
    DLTensor x_view = x.view, y_view = y.view;
    x_view.ndim = y_view.ndim = 3;
    x_view.shape = y_view.shape = shape;
    const halyard_status status =
        halyard_block_forward(work.context.get(), set.block.get(), &x_view, set.cache.get(), 0, nullptr, &y_view);
    return status == HALYARD_OK && set.cache ? rewind_cache(id, set.cache.get()) : status;
}

}  // namespace halyard::bench
