// See operands.h.
#include <algorithm>
#include <array>

#include "operands.h"

namespace halyard::bench {
namespace {

constexpr unsigned first_seed = 1000, seeds_per_layer = 32, bias_seed = 10, norm_seed = 20, norm_bias_seed = 24;
constexpr unsigned x_seed = 400;
constexpr std::int64_t sampled_rows = 3, sampled_columns = 256;

/** The rows of a prompt's x repeat after so many, which spares the reference the products of the others. No tile of
 * rows divides it. */
constexpr std::int64_t distinct_rows = 13;

constexpr std::array<const char *, 7> parts = {"q", "k", "v", "o", "gate", "up", "down"};

Sample sample_of(const BenchmarkCase &bench_case) {
    const CaseId &id = bench_case.id;
    const Matrix &x = bench_case.sets[0].inputs[0];
    const operations::BlockValues block = block_values(bench_case, "");
    std::vector<operations::Row> distinct;
    for (std::int64_t row = 0; row < std::min(id.rows, distinct_rows) && !id.decodes(); row++) {
        distinct.push_back(x.row(row));
    }
    const std::vector<operations::KeyValue> projected = operations::keys_and_values(block, distinct);
    const auto at = [&](std::int64_t position) -> const operations::KeyValue & {
        return projected[static_cast<std::size_t>(position) % projected.size()];
    };
    const std::int64_t dim = id.heads().head_dim;
    const auto part = [dim](const operations::Row &row, std::int64_t head) {
        return operations::Row(row.begin() + head * dim, row.begin() + (head + 1) * dim);
    };

    Sample sample(id.rows, sampled_rows, x.width(), sampled_columns);
    // Rows are the sequences of a decode, the positions of a prompt.
    std::vector<operations::LateToken> tokens;
    for (const std::int64_t row : sample.rows) {
        if (id.decodes()) {
            const auto of = [&, row](const char *name) {
                return [&history = bench_case.parameters.matrices.at(name), first = row * id.cached,
                        dim](std::int64_t position, std::int64_t head) {
                    return history.row(first + position, head * dim, dim);
                };
            };
            tokens.push_back({x.row(row), id.cached, of("keys"), of("values")});
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
        sample.expect(operations::values_of(y));
    }
    return sample;
}

}  // namespace

void add_block(Parameters &parameters, const std::string &prefix, const BlockForm &form, Dtype dtype, unsigned layer) {
    const unsigned seed = first_seed + seeds_per_layer * layer;
    const std::int64_t d = form.d, queries = form.heads.query_width(), kv = form.heads.kv_width();
    const std::int64_t shapes[][2] = {
        {queries, d}, {kv, d}, {kv, d}, {d, queries}, {form.gated ? form.d_ff : 0, d}, {form.d_ff, d}, {d, form.d_ff}};
    for (unsigned i = 0; i < parts.size(); i++) {
        const auto [out, in] = shapes[i];
        if (out == 0) {
            continue;
        }
        parameters.add_matrix(prefix + parts[i], dtype, out, in, seed + i);
        if (form.has_bias) {
            parameters.add_vector(prefix + parts[i] + "_bias", dtype, out, seed + bias_seed + i, 0);
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        const std::string name = prefix + "norm" + std::to_string(i);
        parameters.add_vector(name, dtype, d, seed + norm_seed + i, 1);
        if (form.norm == HALYARD_NORM_LAYER) {
            parameters.add_vector(name + "_bias", dtype, d, seed + norm_bias_seed + i, 0);
        }
    }
}

std::shared_ptr<const halyard_block> make_block(const BenchmarkCase &bench_case, const std::string &prefix) {
    const Parameters &parameters = bench_case.parameters;
    halyard_block_weights weights{};
    weights.layout = HALYARD_WEIGHT_OUT_IN;
    weights.quantization = bench_case.id.kernel->block->quantization;
    const DLTensor **const matrices[] = {&weights.q_proj,    &weights.k_proj,  &weights.v_proj,   &weights.o_proj,
                                         &weights.gate_proj, &weights.up_proj, &weights.down_proj};
    std::vector<Matrix> sources;
    sources.reserve(parts.size());
    for (std::size_t i = 0; i < parts.size(); i++) {
        const auto found = parameters.matrices.find(prefix + parts[i]);
        if (found != parameters.matrices.end()) {
            *matrices[i] = &sources.emplace_back(found->second.whole()).view;
        }
    }
    const auto vector = [&](const char *name) { return parameters.vector(prefix + name); };
    weights.q_proj_bias = vector("q_bias");
    weights.k_proj_bias = vector("k_bias");
    weights.v_proj_bias = vector("v_bias");
    weights.o_proj_bias = vector("o_bias");
    weights.up_proj_bias = vector("up_bias");
    weights.down_proj_bias = vector("down_bias");
    weights.attention_norm = vector("norm0");
    weights.attention_norm_bias = vector("norm0_bias");
    weights.ffn_norm = vector("norm1");
    weights.ffn_norm_bias = vector("norm1_bias");

    halyard_block_config config{};
    require(bench_case.id.kernel->block->config(bench_case.id.cached + bench_case.id.tokens(), config));
    halyard_block *made = nullptr;
    require(halyard_block_create(bench_case.context.get(), &config, &weights, &made));
    return {made, [made](const halyard_block *) { halyard_block_destroy(made); }};
}

operations::BlockValues block_values(const BenchmarkCase &bench_case, const std::string &prefix) {
    const Parameters &parameters = bench_case.parameters;
    operations::BlockValues block;
    require(bench_case.id.kernel->block->config(0, block.config));
    operations::WeightMatrix *const weights[] = {&block.q,    &block.k,  &block.v,   &block.o,
                                                 &block.gate, &block.up, &block.down};
    operations::Row *const biases[] = {&block.q_bias,    &block.k_bias,  &block.v_bias,   &block.o_bias,
                                       &block.gate_bias, &block.up_bias, &block.down_bias};
    for (std::size_t i = 0; i < parts.size(); i++) {
        const auto found = parameters.matrices.find(prefix + parts[i]);
        if (found != parameters.matrices.end()) {
            *weights[i] = found->second.weights(bench_case.id.kernel->block->quantization);
            *biases[i] = parameters.values(prefix + parts[i] + "_bias");
        }
    }
    const auto values = [&](const char *name) { return parameters.values(prefix + name); };
    block.attention_norm = {values("norm0"), values("norm0_bias")};
    block.ffn_norm = {values("norm1"), values("norm1_bias")};
    return block;
}

void prepare_block(BenchmarkCase &bench_case) {
    const CaseId &id = bench_case.id;
    const BlockForm &form = *id.kernel->block;
    add_block(bench_case.parameters, "", form, id.dtype, 0);
    bench_case.make_sets({{form.d, 1.5}}, form.d);
    Matrix few(id.dtype, std::min(id.rows, distinct_rows), form.d);
    few.fill_random(x_seed, 0.0, 1.5);
    const std::size_t row_bytes = few.bytes() / static_cast<std::size_t>(few.rows());
    for (OperandSet &set : bench_case.sets) {
        for (std::int64_t row = 0; row < id.rows; row++) {
            std::memcpy(set.inputs[0].data() + static_cast<std::size_t>(row) * row_bytes,
                        few.data() + static_cast<std::size_t>(row % few.rows()) * row_bytes, row_bytes);
        }
        set.block = make_block(bench_case, "");
    }
    add_history(bench_case);
    bench_case.sample = std::make_unique<Sample>(sample_of(bench_case));
}

halyard_status call_block(BenchmarkCase &bench_case, OperandSet &set) {
    const CaseId &id = bench_case.id;
    // [sequences, tokens, d]
    std::int64_t shape[3] = {id.sequences(), id.tokens(), set.inputs[0].width()};
    DLTensor x = set.inputs[0].view, y = set.outputs[0].view;
    x.ndim = y.ndim = 3;
    x.shape = y.shape = shape;
    return rewind_cache(
        id, set.cache.get(),
        halyard_block_forward(bench_case.context.get(), set.block.get(), &x, set.cache.get(), 0, nullptr, &y));
}

}  // namespace halyard::bench
