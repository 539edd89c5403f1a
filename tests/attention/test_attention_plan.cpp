// How calls of attention on a CUDA device are cut into pieces, which takes no device: of any numbers that arguments may have.
#include "cuda/attention/attention_plan.h"

#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace halyard::cuda {

bool has_blaslt() {
    return true;
}

namespace {

/** A tensor of heads that are one, repeated. */
Heads repeated(DType dtype, int64_t batch, int64_t tokens, int64_t heads, int64_t head_dim) {
    static char memory[64];
    Heads made;
    made.view.data = memory;
    made.view.dtype = dtype;
    made.batch = batch;
    made.tokens = tokens;
    made.heads = heads;
    made.head_dim = head_dim;
    return made;
}

TEST(AttentionPlan, OfAnyNumbersIsAPlan) {
    const int64_t most = std::numeric_limits<int64_t>::max();
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const int64_t head_dim : {1, 8, 128, 256}) {
            for (const int64_t tokens : {int64_t{1}, int64_t{16}, int64_t{1} << 30, most}) {
                for (int keys = 0; keys < 63; keys++) {
                    for (int heads = 0; heads < 63; heads++) {
                        for (const bool grouped : {false, true}) {
                            AttentionCall call;
                            const int64_t q_heads = int64_t{1} << heads, k_heads = grouped ? 1 : q_heads;
                            call.q = call.y = repeated(dtype, 3, tokens, q_heads, head_dim);
                            call.k = call.v = repeated(dtype, 3, int64_t{1} << keys, k_heads, head_dim);
                            const DevicePlan plan(call);
                            ASSERT_TRUE(plan.queries >= 1 && plan.queries <= tokens) << plan.queries;
                            ASSERT_TRUE(plan.batch >= 1 && plan.batch <= 3) << plan.batch;
                            ASSERT_TRUE(plan.staged_tokens >= 1) << plan.staged_tokens;
                            // At least a result for each split of a query's positions.
                            const double least = static_cast<double>(q_heads) * (double(head_dim) + 2) * 4 *
                                                 (plan.products ? 1 : static_cast<double>(int64_t{1} << keys) / 128);
                            ASSERT_GE(static_cast<double>(plan.partial_bytes), std::min(least, 0x1p62))
                                << "2^" << keys << " keys, 2^" << heads << " heads";
                        }
                    }
                }
            }
        }
    }
}

}  // namespace
}  // namespace halyard::cuda
