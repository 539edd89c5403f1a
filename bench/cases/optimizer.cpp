// See operands.h.
#include "halyard/training.h"

#include <cmath>
#include <cstring>

#include "operands.h"

namespace halyard::bench {
namespace {

constexpr std::int64_t sampled_rows = 16, sampled_columns = 256, first_step = 1;

/** An element after a step: what is written of it, in the order of the outputs. */
using Step = std::vector<double> (*)(const std::vector<double> &numbers, const std::vector<double> &element);

/** Takes p, g and b. */
std::vector<double> sgd(const std::vector<double> &numbers, const std::vector<double> &element) {
    const double lr = numbers[0], momentum = numbers[1], decay = numbers[2];
    const double b = momentum * element[2] + element[1] + decay * element[0];
    return {element[0] - lr * b, b};
}

/** Takes p, g, m and v. */
std::vector<double> adamw(const std::vector<double> &numbers, const std::vector<double> &element) {
    const double lr = numbers[0], beta1 = numbers[1], beta2 = numbers[2], eps = numbers[3], decay = numbers[4];
    const double m = beta1 * element[2] + (1 - beta1) * element[1];
    const double v = beta2 * element[3] + (1 - beta2) * element[1] * element[1];
    const double update = m / (1 - beta1) / (std::sqrt(v / (1 - beta2)) + eps);  // the first step
    return {element[0] - lr * decay * element[0] - lr * update, m, v};
}

void expect_step(BenchmarkCase &bench_case, Step step) {
    const CaseId &id = bench_case.id;
    const std::vector<Matrix> &inputs = bench_case.sets[0].inputs;
    for (int i = 0; i < id.kernel->outputs; i++) {
        bench_case.samples.emplace_back(id.rows, sampled_rows, id.d, sampled_columns);
    }
    for (const std::int64_t row : bench_case.samples[0].rows) {
        std::vector<operations::Row> before, after(bench_case.samples.size());
        for (const Matrix &input : inputs) {
            before.push_back(input.row(row));
        }
        for (std::size_t i = 0; i < static_cast<std::size_t>(id.d); i++) {
            std::vector<double> element;
            for (const operations::Row &values : before) {
                element.push_back(values[i]);
            }
            const std::vector<double> written = step(id.kernel->scalars, element);
            for (std::size_t output = 0; output < after.size(); output++) {
                after[output].push_back(written[output]);
            }
        }
        for (std::size_t output = 0; output < after.size(); output++) {
            bench_case.samples[output].expect(after[output]);
        }
    }
}

void make_state(BenchmarkCase &bench_case, std::size_t inputs) {
    bench_case.make_sets(std::vector<BenchmarkCase::Input>(inputs, {bench_case.id.d, 1.0}), bench_case.id.d);
}

}  // namespace

void prepare_sgd(BenchmarkCase &bench_case) {
    make_state(bench_case, 3);
    bench_case.begin_steps();
    expect_step(bench_case, sgd);
}

halyard_status call_sgd(BenchmarkCase &bench_case, OperandSet &set) {
    const std::vector<double> &numbers = bench_case.id.kernel->scalars;
    const halyard_sgd_options options = {numbers[0], numbers[1], numbers[2], 0, 1};
    return halyard_sgd_step(bench_case.context.get(), &set.outputs[0].view, &set.inputs[1].view, &set.outputs[1].view,
                            &options);
}

void prepare_adamw(BenchmarkCase &bench_case) {
    make_state(bench_case, 4);
    for (OperandSet &set : bench_case.sets) {
        auto *const second_moment = reinterpret_cast<float *>(set.inputs[3].data());
        for (std::int64_t i = 0; i < bench_case.id.rows * bench_case.id.d; i++) {
            second_moment[i] *= second_moment[i];
        }
    }
    bench_case.begin_steps();
    expect_step(bench_case, adamw);
}

halyard_status call_adamw(BenchmarkCase &bench_case, OperandSet &set) {
    const std::vector<double> &numbers = bench_case.id.kernel->scalars;
    const halyard_adamw_options options = {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], 1, 1};
    return halyard_adamw_step(bench_case.context.get(), &set.outputs[0].view, &set.inputs[1].view, &set.outputs[1].view,
                              &set.outputs[2].view, first_step, &options);
}

}  // namespace halyard::bench
