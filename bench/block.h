// A transformer block of the benchmark: its matrices and vectors, the library's block, and what it should make of x.
#ifndef HALYARD_BENCH_BLOCK_H
#define HALYARD_BENCH_BLOCK_H

#include <array>
#include <memory>

#include "attention.h"
#include "work.h"

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
    std::shared_ptr<const halyard_block> make(const Work &work) const;
    /** Makes the operands of `work`, whose row is this block alone, and its sample. */
    void prepare(Work &work);

    // The block in float64, step by step.
    struct KeyValue {
        tests::Row key, value;  // [kv width], before the key is rotated
    };
    KeyValue project(const tests::Row &x) const;
    /** Each head rotated by the angle of its position, Hugging Face's order of features. */
    tests::Row rotate(tests::Row heads, std::int64_t position) const;
    /** y at the given columns for the token x at `position`, which sees itself and what is before it. */
    tests::Row forward(const tests::Row &x, std::int64_t position, const RowAt &keys, const RowAt &values,
                       const std::vector<std::int64_t> &columns) const;

private:
    tests::Row linear(Part part, const tests::Row &x) const;
    tests::Row normalized(Norm norm, const tests::Row &x) const;
    Sample sample(const Work &work) const;

    BlockForm form;
    std::vector<PeriodicMatrix> matrices;  // by part
    std::array<std::unique_ptr<Matrix>, part_count> biases;
    std::array<std::unique_ptr<Matrix>, norm_count> norm_weights, norm_biases;
    std::unique_ptr<History> past;
};

/** What makes a block of this form. */
halyard_block_config block_config(const BlockForm &form, std::int64_t max_positions);

halyard_status call_block(Work &work, Operands &set);

}  // namespace halyard::bench

#endif
