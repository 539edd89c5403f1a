// See attention.h and operands.h.
#include "attention.h"

#include "operands.h"

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

}  // namespace halyard::bench
