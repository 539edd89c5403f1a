// How the work of attention is cut into items for threads.
#ifndef HALYARD_RUNTIME_CPU_ATTENTION_ATTENTION_PLAN_H
#define HALYARD_RUNTIME_CPU_ATTENTION_ATTENTION_PLAN_H

#include "core/calls/attention.h"
#include "cpu/attention/query_rows.h"
#include "cpu/linear/microkernels.h"

namespace halyard {

/** Results do not depend on it. */
struct AttentionPlan {
    int64_t threads;
    int64_t key_heads;        // (batch, head of keys)
    int64_t pack_items;       // of each of them: blocks of new positions
    int64_t heads_per_block;  // of q
    int64_t head_blocks;      // that the heads of a group make
    int64_t queries;          // of a block
    int64_t query_blocks;
    int64_t max_blocks;        // of keys
    bool keys_shared = false;  // threads help with those of a block of queries

    AttentionPlan(const halyard_context &context, halyard_isa isa, XForm form, const AttentionCall &call);

    /** Where block `row_block` lies of those of a head of keys. */
    QueryPlace place(const AttentionCall &call, int64_t key_head, int64_t row_block) const;

    int64_t max_rows() const { return queries * heads_per_block; }
    int64_t row_blocks() const { return head_blocks * query_blocks; }
    /** A head's items of work: first the packing, then the blocks of rows. */
    int64_t items() const { return pack_items + row_blocks(); }
};

}  // namespace halyard

#endif
