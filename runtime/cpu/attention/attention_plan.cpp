// See attention_plan.h.
#include "cpu/attention/attention_plan.h"

#include "core/parameters.h"
#include "cpu/attention/row_tiles.h"

namespace halyard {

// Blocks of queries are halved until there are enough for all threads, or until they have few rows.
constexpr int64_t few_rows = 8;

AttentionPlan::AttentionPlan(const halyard_context &context, halyard_isa isa, XForm form, const AttentionCall &call) {
    const Heads &q = call.q, &k = call.k;
    const auto divide_up = [](int64_t n, int64_t by) { return (n + by - 1) / by; };
    key_heads = k.batch * k.heads;
    const int64_t group = q.heads / k.heads;
    head_blocks = divide_up(group, max_attention_rows);
    heads_per_block = divide_up(group, head_blocks);
    const int64_t rows = best_attention_rows(isa, form, q.head_dim);
    queries = std::max<int64_t>(1, std::min(q.tokens, rows / heads_per_block));
    pack_items = 0;
    max_blocks = 0;
    double bytes = 0;
    for (int64_t b = 0; b < k.batch; b++) {
        const int64_t first = call.first_key(b), keys = call.keys(b);
        pack_items = std::max(pack_items, divide_up(keys, k_block) - first / k_block);
        max_blocks = std::max(max_blocks, divide_up(keys, k_block));
        bytes += static_cast<double>(keys) * 2 * sizeof(float) * static_cast<double>(k.head_dim * k.heads) *
                 static_cast<double>(divide_up(q.tokens * group, max_tile_rows));
    }
    threads = static_cast<int64_t>(std::clamp(bytes / static_cast<double>(parameters.attention_thread_bytes), 1.0,
                                              static_cast<double>(thread_bound(context))));
    query_blocks = divide_up(q.tokens, queries);
    if (threads > 1) {
        while (key_heads * row_blocks() < threads * parameters.attention_blocks_per_thread && queries > 1 &&
               max_rows() > few_rows) {
            queries = divide_up(queries, 2);
            query_blocks = divide_up(q.tokens, queries);
        }
        const int64_t wanted = threads * (max_rows() > few_rows ? parameters.attention_blocks_per_thread
                                                                : parameters.attention_long_blocks_per_thread);
        keys_shared = max_blocks > 1 && key_heads * row_blocks() < wanted;
    }
    threads = std::min(threads, key_heads * (pack_items + row_blocks() * (keys_shared ? max_blocks : 1)));
}

QueryPlace AttentionPlan::place(const AttentionCall &call, int64_t key_head, int64_t row_block) const {
    const int64_t group = call.q.heads / call.k.heads, b = key_head / call.k.heads;
    const int64_t in_group = row_block % head_blocks * heads_per_block;
    // The last queries first: with a causal mask they take longest.
    const int64_t query = (query_blocks - 1 - row_block / head_blocks) * queries;
    const QueryBlock block = {call.first_query(b) + query, std::min(queries, call.q.tokens - query),
                              std::min(heads_per_block, group - in_group)};
    return {block, b, query, key_head % call.k.heads * group + in_group};
}

}  // namespace halyard
