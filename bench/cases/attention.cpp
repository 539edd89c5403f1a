// See attention.h.
#include "attention.h"

#include <algorithm>
#include <cmath>

namespace halyard::bench {
namespace {

constexpr unsigned input_seed = 300, history_seed = 310;
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

// ---- History ----

History::History(const CaseId &id)
    : past_keys(id.dtype, id.sequences() * id.cached, id.heads().kv_width(), history_seed, 1.0),
      past_values(id.dtype, id.sequences() * id.cached, id.heads().kv_width(), history_seed + 1, 1.0) {}

void History::make_caches(BenchmarkCase &bench_case) const {
    const CaseId &id = bench_case.id;
    const HeadShape &shape = id.heads();
    const Matrix k = past_keys.whole(), v = past_values.whole();
    const HeadsView keys(k, id.sequences(), shape.kv_heads, shape.head_dim);
    const HeadsView values(v, id.sequences(), shape.kv_heads, shape.head_dim);
    for (OperandSet &set : bench_case.sets) {
        set.cache = make_cache(id, 1);
        require(
            halyard_kv_cache_append(bench_case.context.get(), set.cache.get(), 0, nullptr, &keys.view, &values.view));
    }
}

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

halyard_status rewind_cache(const CaseId &id, halyard_kv_cache *cache) {
    for (std::int64_t sequence = 0; sequence < id.sequences(); sequence++) {
        const halyard_status status = halyard_kv_cache_truncate(cache, sequence, id.cached);
        if (status != HALYARD_OK) {
            return status;
        }
    }
    return HALYARD_OK;
}

// ---- Attention ----

Attention::Attention(BenchmarkCase &bench_case)
    : past(bench_case.id.decodes() ? std::make_unique<History>(bench_case.id) : nullptr) {
    const CaseId &id = bench_case.id;
    const HeadShape &shape = id.heads();
    for (std::size_t i = 0; i < id.set_count(bench_case.cold_set); i++) {
        OperandSet operands;
        for (const Input input : {q, k, v}) {
            operands.inputs.emplace_back(id.dtype, id.rows, input == q ? shape.query_width() : shape.kv_width());
            // Queries long enough to look at some of many keys more than at others.
            operands.inputs.back().fill_random(input_seed + input, 0.0, input == q ? 1.5 : 1.0);
        }
        operands.outputs.emplace_back(id.dtype, id.rows, shape.query_width());
        bench_case.sets.push_back(std::move(operands));
    }
    if (past) {
        past->make_caches(bench_case);
    }

    Sample sample;
    sample.rows = spread(id.rows, sampled_rows);
    sample.columns = spread(shape.query_width(), sampled_columns);
    const std::vector<Matrix> &inputs = bench_case.sets[0].inputs;
    for (const std::int64_t row : sample.rows) {
        // Rows are the sequences of a decode, the positions of a prompt.
        const auto at = [&](Input input, const PeriodicMatrix *history) {
            return [&, input, history](std::int64_t position) {
                const bool is_past = position < id.cached;
                return is_past ? history->row(row * id.cached + position)
                               : inputs[input].row(id.decodes() ? row : position);
            };
        };
        const operations::Row y = operations::attend(shape, inputs[q].row(row), id.decodes() ? id.cached + 1 : row + 1,
                                                     at(k, past ? &past->keys() : nullptr),
                                                     at(v, past ? &past->values() : nullptr), id.kernel->scalars[0]);
        operations::Row &expected = sample.expected.emplace_back();
        for (const std::int64_t column : sample.columns) {
            expected.push_back(y[static_cast<std::size_t>(column)]);
        }
    }
    bench_case.sample = std::make_unique<Sample>(std::move(sample));
}

halyard_status call_attention(BenchmarkCase &bench_case, OperandSet &set) {
    const CaseId &id = bench_case.id;
    const HeadShape &shape = id.heads();
    const HeadsView q(set.inputs[Attention::q], id.sequences(), shape.heads, shape.head_dim);
    const HeadsView k(set.inputs[Attention::k], id.sequences(), shape.kv_heads, shape.head_dim);
    const HeadsView v(set.inputs[Attention::v], id.sequences(), shape.kv_heads, shape.head_dim);
    HeadsView y(set.outputs[0], id.sequences(), shape.heads, shape.head_dim);
    const halyard_status status =
        operations::call_attention(bench_case.context.get(), q.view, k.view, v.view, set.cache.get(),
                                   static_cast<float>(id.kernel->scalars[0]), y.view);
    return status == HALYARD_OK && set.cache ? rewind_cache(id, set.cache.get()) : status;
}

}  // namespace halyard::bench
