// See attention.h and operands.h.
#include "attention.h"

#include <algorithm>

#include "operands.h"
#include "operations/reference_gradients.h"

namespace halyard::bench {
namespace {

constexpr unsigned history_seed = 310;
constexpr std::int64_t sampled_rows = 4, sampled_columns = 512;

}  // namespace

HeadsView::HeadsView(const Matrix &matrix, std::int64_t sequences, std::int64_t heads, std::int64_t head_dim)
    : view(matrix.view), shape{sequences, matrix.rows() / sequences, heads, head_dim}, strides{shape[1] *
                                                                                                   matrix.width(),
                                                                                               matrix.width(), head_dim,
                                                                                               1} {
    view.ndim = 4;
    view.shape = shape;
    view.strides = strides;
}

// ---- caches ----

std::shared_ptr<halyard_kv_cache> make_cache(const CaseId &id, std::int64_t layers) {
    halyard_kv_cache_options options{};
    options.n_layers = layers;
    options.n_sequences = id.sequences();
    options.n_kv_heads = id.heads().kv_heads;
    options.head_dim = id.heads().head_dim;
    options.max_positions = id.cached + id.tokens();
    options.dtype = operations::dlpack_type(id.dtype);
    halyard_kv_cache *made = nullptr;
    require(halyard_kv_cache_create(&options, nullptr, 0, &made));
    return {made, halyard_kv_cache_destroy};
}

void add_history(BenchmarkCase &bench_case) {
    const CaseId &id = bench_case.id;
    if (!id.decodes()) {
        return;
    }
    const HeadShape &shape = id.heads();
    const std::int64_t positions = id.sequences() * id.cached;
    Parameters &parameters = bench_case.parameters;
    parameters.add_matrix("keys", id.dtype, positions, shape.kv_width(), history_seed, 1.0);
    parameters.add_matrix("values", id.dtype, positions, shape.kv_width(), history_seed + 1, 1.0);
    const Matrix k = parameters.matrices.at("keys").whole(), v = parameters.matrices.at("values").whole();
    const HeadsView keys(k, id.sequences(), shape.kv_heads, shape.head_dim);
    const HeadsView values(v, id.sequences(), shape.kv_heads, shape.head_dim);
    for (OperandSet &set : bench_case.sets) {
        set.cache = make_cache(id, 1);
        require(
            halyard_kv_cache_append(bench_case.context.get(), set.cache.get(), 0, nullptr, &keys.view, &values.view));
    }
}

halyard_status rewind_cache(const CaseId &id, halyard_kv_cache *cache, halyard_status status) {
    for (std::int64_t i = 0; cache != nullptr && status == HALYARD_OK && i < id.sequences(); i++) {
        status = halyard_kv_cache_truncate(cache, i, id.cached);
    }
    return status;
}

// ---- attention ----

void prepare_attention(BenchmarkCase &bench_case) {
    const CaseId &id = bench_case.id;
    const HeadShape &shape = id.heads();
    // Queries long enough to look at some of many keys more than at others.
    bench_case.make_sets({{shape.query_width(), 1.5}, {shape.kv_width(), 1.0}, {shape.kv_width(), 1.0}},
                         shape.query_width());
    add_history(bench_case);

    Sample sample(id.rows, sampled_rows, shape.query_width(), sampled_columns);
    const std::vector<Matrix> &inputs = bench_case.sets[0].inputs;
    for (const std::int64_t row : sample.rows) {
        // Rows are the sequences of a decode, the positions of a prompt.
        const auto at = [&](const Matrix &input, const char *history) {
            return [&, history](std::int64_t position) {
                return position < id.cached ? bench_case.parameters.matrices.at(history).row(row * id.cached + position)
                                            : input.row(id.decodes() ? row : position);
            };
        };
        sample.expect(operations::attend(shape, inputs[0].row(row), id.decodes() ? id.cached + 1 : row + 1,
                                         at(inputs[1], "keys"), at(inputs[2], "values"), id.kernel->scalars[0]));
    }
    bench_case.samples.push_back(std::move(sample));
}

halyard_status call_attention(BenchmarkCase &bench_case, OperandSet &set) {
    const CaseId &id = bench_case.id;
    const HeadShape &shape = id.heads();
    const HeadsView q(set.inputs[0], id.sequences(), shape.heads, shape.head_dim);
    const HeadsView k(set.inputs[1], id.sequences(), shape.kv_heads, shape.head_dim);
    const HeadsView v(set.inputs[2], id.sequences(), shape.kv_heads, shape.head_dim);
    HeadsView y(set.outputs[0], id.sequences(), shape.heads, shape.head_dim);
    return rewind_cache(id, set.cache.get(),
                        operations::call_attention(bench_case.context.get(), q.view, k.view, v.view, set.cache.get(),
                                                   static_cast<float>(id.kernel->scalars[0]), y.view));
}

// ---- its gradients ----

namespace {

/** What lies at "head" of the rows of heads, row by row. */
std::vector<operations::Row> rows_of_head(const Matrix &matrix, std::int64_t first, std::int64_t count,
                                          std::int64_t head, std::int64_t width) {
    std::vector<operations::Row> rows;
    for (std::int64_t row = first; row < first + count; row++) {
        const operations::Row whole = matrix.row(row);
        rows.emplace_back(whole.begin() + head * width, whole.begin() + (head + 1) * width);
    }
    return rows;
}

/** The gradients of one head of keys, of queries and keys of these ranges alone: given y and the log-sum-exp, others add nothing
 *  to what these do with each other. */
operations::AttentionGradients gradients_of(const CaseId &id, const std::vector<Matrix> &inputs, std::int64_t key_head,
                                            std::int64_t query, std::int64_t queries, std::int64_t key,
                                            std::int64_t keys) {
    const HeadShape &shape = id.heads();
    const std::int64_t group = shape.heads / shape.kv_heads, width = shape.head_dim;
    std::vector<operations::AttentionHead> heads;
    for (std::int64_t head = key_head * group; head < (key_head + 1) * group; head++) {
        operations::Row sums;
        for (const operations::Row &row : rows_of_head(inputs[5], query, queries, head, 1)) {
            sums.push_back(row[0]);
        }
        heads.push_back({rows_of_head(inputs[0], query, queries, head, width),
                         rows_of_head(inputs[4], query, queries, head, width),
                         rows_of_head(inputs[3], query, queries, head, width), sums});
    }
    operations::AttentionRule rule;
    rule.causal = true;
    return operations::attention_gradients(heads, rows_of_head(inputs[1], key, keys, key_head, width),
                                           rows_of_head(inputs[2], key, keys, key_head, width), query - key, rule);
}

void append(operations::Row &to, const operations::ExpectedRow &from) {
    const operations::Row values = operations::values_of(from);
    to.insert(to.end(), values.begin(), values.end());
}

/** What dq, dk and dv must be. */
std::vector<Sample> samples_of_gradients(const CaseId &id, const std::vector<Matrix> &inputs) {
    const HeadShape &shape = id.heads();
    std::vector<Sample> samples = {{id.rows, sampled_rows, shape.query_width(), sampled_columns},
                                   {id.rows, sampled_rows, shape.kv_width(), sampled_columns},
                                   {id.rows, sampled_rows, shape.kv_width(), sampled_columns}};
    // The first query sees one key: its dq is 0 but for roundings, which say nothing beside it.
    samples[0].rows.front() = std::min<std::int64_t>(1, id.rows - 1);
    for (const std::int64_t row : samples[0].rows) {
        operations::Row dq;
        for (std::int64_t head = 0; head < shape.kv_heads; head++) {
            const operations::AttentionGradients of_query = gradients_of(id, inputs, head, row, 1, 0, row + 1);
            for (const operations::Matrix &of_head : of_query.dq) {
                append(dq, of_head[0]);
            }
        }
        samples[0].expect(dq);
    }
    for (const std::int64_t row : samples[1].rows) {
        operations::Row dk, dv;
        for (std::int64_t head = 0; head < shape.kv_heads; head++) {
            const operations::AttentionGradients of_key = gradients_of(id, inputs, head, row, id.rows - row, row, 1);
            append(dk, of_key.dk[0]);
            append(dv, of_key.dv[0]);
        }
        samples[1].expect(dk);
        samples[2].expect(dv);
    }
    return samples;
}

/** An operand set as tensors of heads. */
struct GradientTensors {
    GradientTensors(const CaseId &id, OperandSet &set)
        : shape(id.heads()), q(set.inputs[0], 1, shape.heads, shape.head_dim),
          k(set.inputs[1], 1, shape.kv_heads, shape.head_dim), v(set.inputs[2], 1, shape.kv_heads, shape.head_dim),
          dy(set.inputs[3], 1, shape.heads, shape.head_dim), y(set.inputs[4], 1, shape.heads, shape.head_dim),
          log_sum_exp(set.inputs[5], 1, shape.heads, 1) {
        log_sum_exp.view.ndim = 3;
        options.causal = 1;
    }

    const HeadShape &shape;
    HeadsView q, k, v, dy, y, log_sum_exp;
    halyard_attention_options options{};
};

}  // namespace

void prepare_attention_gradient(BenchmarkCase &bench_case) {
    const CaseId &id = bench_case.id;
    const HeadShape &shape = id.heads();
    bench_case.make_sets({{shape.query_width(), 1.5},
                          {shape.kv_width(), 1.0},
                          {shape.kv_width(), 1.0},
                          {shape.query_width(), 1.0},
                          {shape.query_width(), 1.0},
                          {shape.heads, 1.0}},
                         shape.query_width());
    for (OperandSet &set : bench_case.sets) {
        GradientTensors tensors(id, set);
        tensors.options.log_sum_exp = &tensors.log_sum_exp.view;
        require(halyard_attention(bench_case.context.get(), &tensors.q.view, &tensors.k.view, &tensors.v.view,
                                  &tensors.options, &tensors.y.view));
        for (int gradient = 0; gradient < 2; gradient++) {
            set.outputs.emplace_back(Dtype::f32, id.rows, shape.kv_width());
        }
    }
    bench_case.samples = samples_of_gradients(id, bench_case.sets[0].inputs);
}

halyard_status call_attention_gradient(BenchmarkCase &bench_case, OperandSet &set) {
    GradientTensors tensors(bench_case.id, set);
    const HeadShape &shape = tensors.shape;
    HeadsView dq(set.outputs[0], 1, shape.heads, shape.head_dim), dk(set.outputs[1], 1, shape.kv_heads, shape.head_dim),
        dv(set.outputs[2], 1, shape.kv_heads, shape.head_dim);
    return halyard_attention_backward(bench_case.context.get(), &tensors.q.view, &tensors.k.view, &tensors.v.view,
                                      &tensors.y.view, &tensors.log_sum_exp.view, &tensors.dy.view, &tensors.options,
                                      &dq.view, &dk.view, &dv.view);
}

}  // namespace halyard::bench
