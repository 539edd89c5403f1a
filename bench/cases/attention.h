// Rows as heads, for attention and what stands beside it.
#ifndef HALYARD_BENCH_CASES_ATTENTION_H
#define HALYARD_BENCH_CASES_ATTENTION_H

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

}  // namespace halyard::bench

#endif
