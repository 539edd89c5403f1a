// See operands.h.
#include <algorithm>
#include <deque>

#include "operands.h"

namespace halyard::bench {
namespace {

constexpr unsigned first_seed = 1000, seeds_per_layer = 32, x_seed = 400;
constexpr std::int64_t sampled_rows = 3, sampled_columns = 256;

/** The rows of a prompt's x repeat after so many, which spares the reference the products of the others. No tile of
 * rows divides it. */
constexpr std::int64_t distinct_rows = 13;

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
    unsigned seed = first_seed + seeds_per_layer * layer;
    operations::Sizes sizes;
    sizes.d = form.d;
    sizes.d_out = form.d_ff;
    sizes.head_dim = form.heads.head_dim;
    for (const auto &[operand, tensor, matrix, vector] : operations::block_parameters(form)) {
        const std::string name = operand.name;
        const operations::Sizes::Shape shape = operand.shape(sizes);
        if (matrix) {
            parameters.add_matrix(prefix + name, dtype, shape[0], shape[1], seed++);
        } else {
            parameters.add_vector(prefix + name, dtype, shape[0], seed++, name.find("bias") != name.npos ? 0 : 1);
        }
    }
}

std::shared_ptr<const halyard_block> make_block(const BenchmarkCase &bench_case, const std::string &prefix) {
    const BlockForm &form = *bench_case.id.kernel->block;
    const Parameters &parameters = bench_case.parameters;
    std::deque<Matrix> sources;
    std::vector<const DLTensor *> tensors;
    for (const operations::BlockParameter &each : operations::block_parameters(form)) {
        const std::string name = prefix + each.operand.name;
        tensors.push_back(each.matrix ? &sources.emplace_back(parameters.matrices.at(name).whole()).view
                                      : parameters.vector(name));
    }
    return make_block(bench_case, tensors.data());
}

std::shared_ptr<halyard_block> make_block(const BenchmarkCase &bench_case, const DLTensor *const *tensors) {
    const BlockForm &form = *bench_case.id.kernel->block;
    const halyard_block_weights weights = operations::block_weights(form, tensors);
    halyard_block_config config{};
    require(form.config(bench_case.id.cached + bench_case.id.tokens(), config));
    halyard_block *made = nullptr;
    require(halyard_block_create(bench_case.context.get(), &config, &weights, &made));
    return {made, halyard_block_destroy};
}

operations::BlockValues block_values(const BenchmarkCase &bench_case, const std::string &prefix) {
    const BlockForm &form = *bench_case.id.kernel->block;
    const Parameters &parameters = bench_case.parameters;
    operations::BlockValues block;
    require(form.config(0, block.config));
    for (const auto &[operand, tensor, matrix, vector] : operations::block_parameters(form)) {
        const std::string name = prefix + operand.name;
        if (matrix) {
            matrix(block) = parameters.matrices.at(name).weights(form.quantization);
        } else {
            vector(block) = parameters.values(name);
        }
    }
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
    bench_case.samples.push_back(sample_of(bench_case));
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
