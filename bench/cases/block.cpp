// See block.h.
#include "block.h"

#include <algorithm>
#include <cmath>

namespace halyard::bench {
namespace {

constexpr unsigned first_seed = 1000, seeds_per_layer = 32, bias_seed = 10, norm_seed = 20, norm_bias_seed = 24;
constexpr unsigned x_seed = 400;
constexpr std::int64_t sampled_rows = 3, sampled_columns = 256;

/** The rows of a prompt's x repeat after so many, which spares the reference the products of the others. No tile of
 * rows divides it. */
constexpr std::int64_t distinct_rows = 13;

const DLTensor *view_of(const std::unique_ptr<Matrix> &matrix) {
    return matrix ? &matrix->view : nullptr;
}

operations::Row row_of(const std::unique_ptr<Matrix> &matrix) {
    return matrix ? matrix->row(0) : operations::Row();
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

std::shared_ptr<const halyard_block> Block::make(const BenchmarkCase &bench_case) const {
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

    halyard_block_config config{};
    require(form.config(bench_case.id.cached + bench_case.id.tokens(), config));
    halyard_block *made = nullptr;
    require(halyard_block_create(bench_case.context.get(), &config, &weights, &made));
    return {made, [made](const halyard_block *) { halyard_block_destroy(made); }};
}

void Block::prepare(BenchmarkCase &bench_case) {
    const CaseId &id = bench_case.id;
    Matrix few(id.dtype, std::min(id.rows, distinct_rows), form.d);
    few.fill_random(x_seed, 0.0, 1.5);
    const std::size_t row_bytes = few.bytes() / static_cast<std::size_t>(few.rows());
    for (std::size_t i = 0; i < id.set_count(bench_case.cold_set); i++) {
        OperandSet operands;
        Matrix &x = operands.inputs.emplace_back(id.dtype, id.rows, form.d);
        for (std::int64_t row = 0; row < id.rows; row++) {
            std::memcpy(x.data() + static_cast<std::size_t>(row) * row_bytes,
                        few.data() + static_cast<std::size_t>(row % few.rows()) * row_bytes, row_bytes);
        }
        operands.outputs.emplace_back(id.dtype, id.rows, form.d);
        operands.block = make(bench_case);
        bench_case.sets.push_back(std::move(operands));
    }
    if (id.decodes()) {
        past = std::make_unique<History>(id);
        past->make_caches(bench_case);
    }
    bench_case.sample = std::make_unique<Sample>(sample(bench_case));
}

// ---- float64 ----

operations::BlockValues Block::values() const {
    operations::BlockValues result;
    require(form.config(0, result.config));
    operations::WeightMatrix *const weights[part_count] = {&result.q,    &result.k,  &result.v,   &result.o,
                                                           &result.gate, &result.up, &result.down};
    operations::Row *const vectors[part_count] = {&result.q_bias,    &result.k_bias,  &result.v_bias,   &result.o_bias,
                                                  &result.gate_bias, &result.up_bias, &result.down_bias};
    for (unsigned part = 0; part < part_count; part++) {
        if (has(static_cast<Part>(part))) {
            *weights[part] = matrices[part].weights();
            *vectors[part] = row_of(biases[part]);
        }
    }
    result.attention_norm = {row_of(norm_weights[before_attention]), row_of(norm_biases[before_attention])};
    result.ffn_norm = {row_of(norm_weights[before_ffn]), row_of(norm_biases[before_ffn])};
    return result;
}

Sample Block::sample(const BenchmarkCase &bench_case) const {
    const CaseId &id = bench_case.id;
    const Matrix &x = bench_case.sets[0].inputs[0];
    const operations::BlockValues block = values();
    std::vector<operations::Row> distinct;
    for (std::int64_t row = 0; row < std::min(id.rows, distinct_rows) && !id.decodes(); row++) {
        distinct.push_back(x.row(row));
    }
    const std::vector<operations::KeyValue> projected = operations::keys_and_values(block, distinct);
    const auto at = [&](std::int64_t position) -> const operations::KeyValue & {
        return projected[static_cast<std::size_t>(position) % projected.size()];
    };
    const std::int64_t dim = form.heads.head_dim;
    const auto part = [dim](const operations::Row &row, std::int64_t head) {
        return operations::Row(row.begin() + head * dim, row.begin() + (head + 1) * dim);
    };

    Sample sample;
    sample.rows = spread(id.rows, sampled_rows);
    sample.columns = spread(form.d, sampled_columns);
    // Rows are the sequences of a decode, the positions of a prompt.
    std::vector<operations::LateToken> tokens;
    for (const std::int64_t row : sample.rows) {
        if (id.decodes()) {
            const auto of = [=](const PeriodicMatrix &history) {
                return [=, &history](std::int64_t position, std::int64_t head) {
                    return history.row(row * id.cached + position, head * dim, dim);
                };
            };
            tokens.push_back({x.row(row), id.cached, of(past->keys()), of(past->values())});
        } else {
            tokens.push_back(
                {x.row(row), row,
                 [&](std::int64_t position, std::int64_t head) {
                     return operations::rotated(block, part(at(position).key, head), position);
                 },
                 [&](std::int64_t position, std::int64_t head) { return part(at(position).value, head); }});
        }
    }
    for (const operations::ExpectedRow &y : operations::block_of_tokens(block, tokens)) {
        operations::Row &expected = sample.expected.emplace_back();
        for (const std::int64_t column : sample.columns) {
            expected.push_back(y[static_cast<std::size_t>(column)].value);
        }
    }
    return sample;
}

halyard_status call_block(BenchmarkCase &bench_case, OperandSet &set) {
    const CaseId &id = bench_case.id;
    const Matrix &x = set.inputs[0], &y = set.outputs[0];
    // [sequences, tokens, d]
    std::int64_t shape[3] = {id.sequences(), id.tokens(), x.width()};
    DLTensor x_view = x.view, y_view = y.view;
    x_view.ndim = y_view.ndim = 3;
    x_view.shape = y_view.shape = shape;
    const halyard_status status =
        halyard_block_forward(bench_case.context.get(), set.block.get(), &x_view, set.cache.get(), 0, nullptr, &y_view);
    return status == HALYARD_OK && set.cache ? rewind_cache(id, set.cache.get()) : status;
}

}  // namespace halyard::bench
