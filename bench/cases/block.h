// A transformer block of the benchmark: its matrices and vectors, the library's block, and what it should make of x.
#ifndef HALYARD_BENCH_CASES_BLOCK_H
#define HALYARD_BENCH_CASES_BLOCK_H

#include <array>
#include <memory>

#include "attention.h"
#include "benchmark_case.h"
#include "operations/reference_block.h"

namespace halyard::bench {

class Block {
public:
    enum Part { q, k, v, o, gate, up, down };
    enum Norm { before_attention, before_ffn };
    static constexpr int part_count = 7, norm_count = 2;

    /** Blocks with different `layer` have different values. */
    Block(const BlockForm &form, Dtype dtype, unsigned layer);

    /** Without a gate there is no matrix `gate`. */
    bool has(Part part) const { return part != gate || form.gated; }
    const PeriodicMatrix &matrix(Part part) const { return matrices[part]; }
    /** [1, out]; null where the block has none. */
    const Matrix *bias(Part part) const { return biases[part].get(); }
    /** [1, d] */
    const Matrix &norm_weight(Norm norm) const { return *norm_weights[norm]; }
    const Matrix *norm_bias(Norm norm) const { return norm_biases[norm].get(); }
    /** As attention's History; null for a prompt. */
    const History *history() const { return past.get(); }

    /** A block of the library's, with memory of its own. */
    std::shared_ptr<const halyard_block> make(const BenchmarkCase &bench_case) const;
    /** Makes the operands of `bench_case`, whose row is this block alone, and its sample. */
    void prepare(BenchmarkCase &bench_case);

    /** For the reference. */
    operations::BlockValues values() const;

private:
    Sample sample(const BenchmarkCase &bench_case) const;

    BlockForm form;
    std::vector<PeriodicMatrix> matrices;  // by part
    std::array<std::unique_ptr<Matrix>, part_count> biases;
    std::array<std::unique_ptr<Matrix>, norm_count> norm_weights, norm_biases;
    std::unique_ptr<History> past;
};

halyard_status call_block(BenchmarkCase &bench_case, OperandSet &set);

}  // namespace halyard::bench

#endif
