// Attention as rows of the benchmark: its tensors, caches filled with random keys and values, and what should come out.
#ifndef HALYARD_BENCH_CASES_ATTENTION_H
#define HALYARD_BENCH_CASES_ATTENTION_H

#include <functional>
#include <memory>

#include "benchmark_case.h"

namespace halyard::bench {

/** A matrix [sequences * tokens, ...] as [sequences, tokens, heads, head_dim]. */
class HeadsView {
public:
    HeadsView(const Matrix &matrix, std::int64_t sequences, std::int64_t heads, std::int64_t head_dim);
    HeadsView(const HeadsView &) = delete;
    DLTensor view;

private:
    std::int64_t shape[4], strides[4];
};

/** Keys and values of the positions before a call. */
class History {
public:
    explicit History(const CaseId &id);

    /** [sequences * cached, kv width]: one sequence after the other. */
    const PeriodicMatrix &keys() const { return past_keys; }
    const PeriodicMatrix &values() const { return past_values; }
    /** Gives every operand set of `bench_case` a cache of its own that holds them. */
    void make_caches(BenchmarkCase &bench_case) const;

private:
    PeriodicMatrix past_keys, past_values;
};

/** A cache that holds a row's positions. */
std::shared_ptr<halyard_kv_cache> make_cache(const CaseId &id, std::int64_t layers);

/** Forgets what calls appended to a cache. */
halyard_status rewind_cache(const CaseId &id, halyard_kv_cache *cache);

class Attention {
public:
    enum Input { q, k, v };

    /** Makes the operands of `bench_case` and its sample. */
    explicit Attention(BenchmarkCase &bench_case);
    /** Null for a prompt. */
    const History *history() const { return past.get(); }

private:
    std::unique_ptr<History> past;
};

halyard_status call_attention(BenchmarkCase &bench_case, OperandSet &set);

}  // namespace halyard::bench

#endif
