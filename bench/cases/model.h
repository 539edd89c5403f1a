// A whole model with random weights as a row of the benchmark: embedding, blocks, last norm, logits.
#ifndef HALYARD_BENCH_CASES_MODEL_H
#define HALYARD_BENCH_CASES_MODEL_H

#include <memory>
#include <vector>

#include "benchmark_case.h"
#include "block.h"

namespace halyard::bench {

class Model {
public:
    /** Makes the model, which becomes the one operand set of `bench_case`, and its sample: what the library's logits are for
     * the row's tokens, once those of a prompt of two tokens have been compared with float64. */
    explicit Model(BenchmarkCase &bench_case);

    const BlockForm &form() const { return shape; }
    const std::vector<std::unique_ptr<Block>> &blocks() const { return layers; }
    /** [vocabulary, d] */
    const PeriodicMatrix &embedding() const { return embed; }
    const PeriodicMatrix &head() const { return lm_head; }
    const Matrix &last_norm() const { return norm; }
    /** The tokens of a prompt, or those that are cached and then the one that is decoded. */
    const std::vector<std::int64_t> &tokens() const { return ids; }

    halyard_status call(const BenchmarkCase &bench_case, OperandSet &set) const;

private:
    /** Runs tokens [first, first + count); logits of the last, or with `all` of each. */
    halyard_status forward(const BenchmarkCase &bench_case, halyard_kv_cache *cache, std::size_t first,
                           std::size_t count, bool all, DLTensor &logits) const;
    void make_stack(const BenchmarkCase &bench_case);
    double error_of_two_tokens(const BenchmarkCase &bench_case) const;
    /** Logits of the first tokens in float64: [token][column of `columns`]. */
    std::vector<operations::Row> reference(std::size_t count, const std::vector<std::int64_t> &columns) const;

    BlockForm shape;
    std::vector<std::unique_ptr<Block>> layers;
    PeriodicMatrix embed, lm_head;
    Matrix norm;
    std::vector<std::int64_t> ids;

    std::unique_ptr<Matrix> embedding_values;  // the stack reads them
    std::vector<std::shared_ptr<const halyard_block>> packed;
    std::shared_ptr<const halyard_stack> stack;
};

halyard_status call_model(BenchmarkCase &bench_case, OperandSet &set);

/** Bytes of physical memory that this process has, without what its allocator keeps for later. */
std::size_t resident_bytes();

}  // namespace halyard::bench

#endif
