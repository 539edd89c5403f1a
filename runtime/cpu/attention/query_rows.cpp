// See query_rows.h.
#include "cpu/attention/query_rows.h"

#include <climits>

#include "core/cast.h"
#include "cpu/attention/rope.h"

namespace halyard {
namespace {

// Kernels count elements in 32 bits: rows that are further apart go one by one.
constexpr int64_t max_row_pitch = INT32_MAX / max_attention_rows;

/** Calls visit(data, row, rows, stride in rows, pitch) for runs of rows of a block that lie evenly in a tensor of
 *  heads and that a kernel can take: the heads of each query, or the queries of each head, whatever makes fewer. */
template<typename Visit>
void for_each_run(const Heads &tensor, const QueryPlace &place, Visit visit) {
    const QueryBlock &block = place.block;
    const bool by_query = block.queries <= block.heads;
    const int64_t runs = by_query ? block.queries : block.heads, length = by_query ? block.heads : block.queries;
    const int64_t step = by_query ? 1 : block.heads, pitch = by_query ? tensor.head_stride : tensor.token_stride;
    const int64_t at_once = pitch <= max_row_pitch ? length : 1;
    for (int64_t run = 0; run < runs; run++) {
        for (int64_t i = 0; i < length; i += at_once) {
            const int64_t query = by_query ? run : i, head = by_query ? i : run;
            visit(tensor.at(place.b, place.query + query, place.head + head), query * block.heads + head, at_once, step,
                  pitch);
        }
    }
}

}  // namespace

void QueryRows::load(const QueryPlace &place, const BlockedRows &rows) const {
    for_each_run(call_.q, place, [&](char *from, int64_t row, int64_t count, int64_t step, int64_t pitch) {
        const TypedRows run = {from, DType::bf16, pitch};
        const int64_t at_once = step == 1 ? count : 1;
        for (int64_t i = 0; i < count; i += at_once) {
            rows.store(isa_, row + i * step, 0, {run.row(i), run.dtype, pitch}, call_.q.head_dim, at_once);
        }
    });
}

void QueryRows::load(const QueryPlace &place, float *rows) {
    const Heads &q = call_.q;
    const QueryBlock &block = place.block;
    for_each_run(q, place, [&](char *from, int64_t row, int64_t count, int64_t step, int64_t pitch) {
        widen(isa_, {from, q.view.dtype, pitch}, rows + row * x_pitch, step * x_pitch, q.head_dim, count);
    });
    if (call_.q_norm_weight.data) {
        char *const bytes = reinterpret_cast<char *>(rows);
        norm_(bytes, x_pitch, bytes, x_pitch, q.head_dim, block.rows());
    }
    for (int64_t i = 0; i < block.queries && call_.rope; i++) {
        float *const row = rows + i * block.heads * x_pitch;
        rotate(isa_, *call_.rope, block.position + i, row, x_pitch, block.heads, row, x_pitch);
    }
}

void QueryRows::store(const QueryPlace &place, const PartialResult &result, int64_t max_rows, int64_t columns) const {
    const Heads &y = call_.y;
    const float *const sums = result.statistics + PartialResult::statistics_pitch(max_rows);
    Buffer<2> into;
    Buffer<2, float> values;
    Buffer<1, float> sum;
    const auto finish = kernel_function(kernels::attention_finish, y.view.dtype, isa_);
    for_each_run(y, place, [&](char *to, int64_t row, int64_t count, int64_t step, int64_t pitch) {
        values.set(result.values + row * columns, y.head_dim, count, step * columns);
        sum.set_data(sums + row);
        sum.set_dim(0, count, step);
        into.set(to, y.head_dim, count, pitch);
        finish({values, sum, into});
    });
    if (call_.log_sum_exp.data) {
        store_log_sum_exp(place, result, max_rows);
    }
}

void QueryRows::store_log_sum_exp(const QueryPlace &place, const PartialResult &result, int64_t max_rows) const {
    const QueryBlock &block = place.block;
    const int64_t whole = PartialResult::statistics_pitch(block.rows());
    float of_rows[max_attention_rows];
    Buffer<2, float> statistics, y;
    statistics.set(result.statistics, whole, 2, PartialResult::statistics_pitch(max_rows));
    y.set(of_rows, whole, 1, 0);
    kernel_function(kernels::attention_log_sum_exp, DType::f32, isa_)({statistics, y});

    const View &into = call_.log_sum_exp;
    const int64_t *const strides = into.strides + into.rank - 2;
    const int64_t batch_stride = into.rank > 2 ? into.strides[0] : 0;
    for (int64_t row = 0; row < block.rows(); row++) {
        const int64_t query = place.query + row / block.heads, head = place.head + row % block.heads;
        reinterpret_cast<float *>(into.data)[place.b * batch_stride + query * strides[0] + head * strides[1]] =
            of_rows[row];
    }
}

}  // namespace halyard
