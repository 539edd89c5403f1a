// See operands.h.
#include "operands.h"

#include <algorithm>

#include "halyard/training.h"
#include "operations/reference_gradients.h"

namespace halyard::bench {
namespace {

constexpr std::int64_t sampled_rows = 4, sampled_columns = 256;

/** Every row has another integer of [0, end), and they come round late. */
std::vector<std::int64_t> scattered(std::int64_t rows, std::int64_t end) {
    std::vector<std::int64_t> integers;
    for (std::int64_t row = 0; row < rows; row++) {
        integers.push_back(row * 7919 % end);
    }
    return integers;
}

/** A row's integers for the library. */
struct IntegerView {
    explicit IntegerView(std::vector<std::int64_t> &integers) : extent(static_cast<std::int64_t>(integers.size())) {
        view.data = integers.data();
        view.device = {kDLCPU, 0};
        view.ndim = 1;
        view.dtype = {kDLInt, 64, 1};
        view.shape = &extent;
    }
    std::int64_t extent;
    DLTensor view{};
};

}  // namespace

void prepare_cross_entropy(BenchmarkCase &bench_case) {
    const CaseId &id = bench_case.id;
    bench_case.make_sets({{id.d, 3.0}}, id.d);
    for (OperandSet &set : bench_case.sets) {
        set.outputs.emplace_back(Dtype::f32, id.rows, 1);
    }
    bench_case.tokens = scattered(id.rows, id.d);
    Sample gradients(id.rows, sampled_rows, id.d, sampled_columns), losses(id.rows, sampled_rows, 1, 1);
    for (const std::int64_t row : gradients.rows) {
        const auto target = static_cast<std::size_t>(bench_case.tokens[static_cast<std::size_t>(row)]);
        const operations::CrossEntropy expected =
            operations::cross_entropy(bench_case.sets[0].inputs[0].row(row), target, 1);
        gradients.expect(operations::values_of(expected.dlogits));
        losses.expect({expected.loss.value});
    }
    bench_case.samples = {gradients, losses};
}

halyard_status call_cross_entropy(BenchmarkCase &bench_case, OperandSet &set) {
    const IntegerView targets(bench_case.tokens);
    DLTensor losses = set.outputs[1].view;
    losses.ndim = 1;
    return halyard_cross_entropy(bench_case.context.get(), &set.inputs[0].view, &targets.view, nullptr, &losses,
                                 &set.outputs[0].view);
}

void prepare_embedding_gradient(BenchmarkCase &bench_case) {
    const CaseId &id = bench_case.id;
    const std::int64_t vocabulary = id.kernel->vocabulary;
    bench_case.make_sets({{id.d, 1.0}}, id.d);
    for (OperandSet &set : bench_case.sets) {
        set.outputs.clear();
        set.outputs.emplace_back(Dtype::f32, vocabulary, id.d);
    }
    bench_case.tokens = scattered(id.rows, vocabulary);
    Sample table(vocabulary, sampled_rows, id.d, sampled_columns);
    // Rows of tokens that there are: errors count beside the largest value of a row.
    table.rows.assign(bench_case.tokens.begin(), bench_case.tokens.begin() + std::min(id.rows, sampled_rows));
    std::sort(table.rows.begin(), table.rows.end());
    table.rows.erase(std::unique(table.rows.begin(), table.rows.end()), table.rows.end());
    for (const std::int64_t token : table.rows) {
        operations::Row sum(static_cast<std::size_t>(id.d));
        for (std::int64_t row = 0; row < id.rows; row++) {
            const operations::Row added = bench_case.sets[0].inputs[0].row(row);
            for (std::size_t i = 0; bench_case.tokens[static_cast<std::size_t>(row)] == token && i < sum.size(); i++) {
                sum[i] += added[i];
            }
        }
        table.expect(sum);
    }
    bench_case.samples = {table};
}

halyard_status call_embedding_gradient(BenchmarkCase &bench_case, OperandSet &set) {
    const IntegerView ids(bench_case.tokens);
    return halyard_embedding_backward(bench_case.context.get(), &ids.view, &set.inputs[0].view, 0,
                                      &set.outputs[0].view);
}

}  // namespace halyard::bench
