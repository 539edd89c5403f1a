// The rows of a block of queries, between the tensors of a call and the GEMMs.
#ifndef HALYARD_RUNTIME_CPU_ATTENTION_QUERY_ROWS_H
#define HALYARD_RUNTIME_CPU_ATTENTION_QUERY_ROWS_H

#include "core/calls/attention.h"
#include "cpu/attention/query_block.h"
#include "cpu/linear/blocked_rows.h"
#include "cpu/ops/norm_rows.h"

namespace halyard {

/** Where a block of queries lies in q and y. */
struct QueryPlace {
    QueryBlock block;
    int64_t b, query, head;
};

class QueryRows {
public:
    /** norm_weight: f32, or empty. */
    QueryRows(halyard_isa isa, const AttentionCall &call, const View &norm_weight)
        : isa_(isa), call_(call), norm_(isa, DType::f32, HALYARD_NORM_RMS, call.rms, norm_weight, View()) {}

    /** Whether queries in bf16 are multiplied as they lie in q. */
    bool are_as_given() const { return call_.q.view.dtype == DType::bf16 && !call_.q_norm_weight.data && !call_.rope; }
    /** Then: the queries of a block. */
    void load(const QueryPlace &place, const BlockedRows &rows) const;
    /** The queries of a block in f32, after norm and rope, x_pitch from one to the next. */
    void load(const QueryPlace &place, float *rows);

    /** Writes y and, if it is wanted, log_sum_exp from a result with room for `max_rows` rows of `columns` values. */
    void store(const QueryPlace &place, const PartialResult &result, int64_t max_rows, int64_t columns) const;

private:
    void store_log_sum_exp(const QueryPlace &place, const PartialResult &result, int64_t max_rows) const;

    const halyard_isa isa_;
    const AttentionCall &call_;
    NormRows norm_;
};

}  // namespace halyard

#endif
