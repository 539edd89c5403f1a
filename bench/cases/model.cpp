// See model.h.
#include "model.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>

namespace halyard::bench {
namespace {

constexpr unsigned embedding_seed = 500, head_seed = 501, norm_seed = 502;
constexpr std::int64_t sampled_columns = 256;
constexpr std::size_t judged_tokens = 2;  // of a prompt in float64: a second each

}  // namespace

std::size_t resident_bytes() {
    malloc_trim(0);
    std::size_t total = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> total >> resident;
    return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

Model::Model(BenchmarkCase &bench_case)
    : shape(*bench_case.id.kernel->block), embed(bench_case.id.dtype, shape.vocabulary, shape.d, embedding_seed, 1.0),
      lm_head(bench_case.id.dtype, shape.vocabulary, shape.d, head_seed, 1 / std::sqrt(static_cast<double>(shape.d))),
      norm(bench_case.id.dtype, 1, shape.d) {
    const CaseId &id = bench_case.id;
    norm.fill_random(norm_seed, 1.0, 0.1);
    for (std::int64_t layer = 0; layer < shape.layers; layer++) {
        layers.push_back(std::make_unique<Block>(shape, id.dtype, static_cast<unsigned>(layer)));
    }
    // Tokens far apart in the vocabulary, none twice in a row.
    for (std::int64_t i = 0; i < id.cached + id.tokens(); i++) {
        ids.push_back((i * 7919 + 17) % shape.vocabulary);
    }

    const std::size_t before = resident_bytes();
    make_stack(bench_case);
    OperandSet &set = bench_case.sets.emplace_back();
    set.outputs.emplace_back(Dtype::f32, 1, shape.vocabulary);
    set.cache = make_cache(id, shape.layers);
    DLTensor &logits = set.outputs[0].view;
    if (id.decodes()) {
        require(forward(bench_case, set.cache.get(), 0, static_cast<std::size_t>(id.cached), false, logits));
    }
    require(call(bench_case, set));
    bench_case.resident = resident_bytes() - before;

    Sample sample;
    sample.known_error = error_of_two_tokens(bench_case);
    sample.rows = {0};
    sample.columns.resize(static_cast<std::size_t>(shape.vocabulary));
    std::iota(sample.columns.begin(), sample.columns.end(), std::int64_t{0});
    sample.expected = {set.outputs[0].row(0)};
    bench_case.sample = std::make_unique<Sample>(std::move(sample));
}

void Model::make_stack(const BenchmarkCase &bench_case) {
    std::vector<const halyard_block *> pointers;
    for (const auto &layer : layers) {
        packed.push_back(layer->make(bench_case));
        pointers.push_back(packed.back().get());
    }
    embedding_values = std::make_unique<Matrix>(embed.whole());
    const Matrix head_values = lm_head.whole();
    const DLTensor norm_view = vector_view(norm);

    halyard_stack_config config{};
    config.vocab_size = shape.vocabulary;
    config.hidden_size = shape.d;
    config.norm = shape.norm;
    config.rms_norm_eps = rms_norm_eps;
    halyard_stack_weights weights{};
    weights.embed_tokens = &embedding_values->view;
    weights.norm = &norm_view;
    weights.lm_head = &head_values.view;
    halyard_stack *made = nullptr;
    require(halyard_stack_create(bench_case.context.get(), &config, &weights, pointers.data(), shape.layers, &made));
    stack = {made, [made](const halyard_stack *) { halyard_stack_destroy(made); }};
}

halyard_status Model::forward(const BenchmarkCase &bench_case, halyard_kv_cache *cache, std::size_t first,
                              std::size_t count, bool all, DLTensor &logits) const {
    std::int64_t count_shape[1] = {static_cast<std::int64_t>(count)};
    DLTensor tokens = {
        const_cast<std::int64_t *>(ids.data() + first), {kDLCPU, 0}, 1, {kDLInt, 64, 1}, count_shape, nullptr, 0};
    DLTensor result = logits;
    if (!all) {
        result.ndim = 1;
        result.shape = logits.shape + 1;
    }
    halyard_stack_options options{};
    options.all_logits = all ? 1 : 0;
    return halyard_stack_forward(bench_case.context.get(), stack.get(), &tokens, cache, nullptr, &options, &result);
}

halyard_status Model::call(const BenchmarkCase &bench_case, OperandSet &set) const {
    const auto first = static_cast<std::size_t>(bench_case.id.cached);
    const halyard_status status =
        forward(bench_case, set.cache.get(), first, ids.size() - first, false, set.outputs[0].view);
    return status == HALYARD_OK ? halyard_kv_cache_truncate(set.cache.get(), 0, bench_case.id.cached) : status;
}

// ---- float64 ----

std::vector<operations::Row> Model::reference(std::size_t count, const std::vector<std::int64_t> &columns) const {
    std::vector<operations::BlockValues> blocks;
    for (const auto &layer : layers) {
        blocks.push_back(layer->values());
    }
    operations::StackValues values;
    values.config.norm = shape.norm;
    values.config.rms_norm_eps = rms_norm_eps;
    const std::vector<std::int64_t> tokens(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
    values.embed_tokens.resize(static_cast<std::size_t>(shape.vocabulary));
    for (const std::int64_t token : tokens) {
        values.embed_tokens[static_cast<std::size_t>(token)] = embed.row(token);
    }
    values.norm.weight = norm.row(0);
    values.lm_head = lm_head.weights();
    for (const operations::BlockValues &block : blocks) {
        values.blocks.push_back(&block);
    }
    std::vector<operations::Row> logits;
    for (const operations::ExpectedRow &all : operations::stack(values, tokens).logits) {
        operations::Row &row = logits.emplace_back();
        for (const std::int64_t column : columns) {
            row.push_back(all[static_cast<std::size_t>(column)].value);
        }
    }
    return logits;
}

double Model::error_of_two_tokens(const BenchmarkCase &bench_case) const {
    const std::size_t count = std::min(judged_tokens, ids.size());
    Matrix logits(Dtype::f32, static_cast<std::int64_t>(count), shape.vocabulary);
    std::memset(logits.data(), 0xff, logits.bytes());
    require(forward(bench_case, nullptr, 0, count, true, logits.view));
    Sample sample;
    sample.rows = spread(static_cast<std::int64_t>(count), static_cast<std::int64_t>(count));
    sample.columns = spread(shape.vocabulary, sampled_columns);
    sample.expected = reference(count, sample.columns);
    return sample.worst_error(logits);
}

halyard_status call_model(BenchmarkCase &bench_case, OperandSet &set) {
    return bench_case.model->call(bench_case, set);
}

}  // namespace halyard::bench
