// How a call of attention on a device is cut into pieces, and what memory these take.
#ifndef HALYARD_RUNTIME_CUDA_ATTENTION_ATTENTION_PLAN_H
#define HALYARD_RUNTIME_CUDA_ATTENTION_ATTENTION_PLAN_H

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "core/calls/attention.h"
#include "cuda/attention/attention_products.h"
#include "cuda/attention/kv_cache.h"
#include "cuda/linear/blaslt.h"
#include "layout/device_attention.h"

namespace halyard::cuda {

// Most bytes of partial results, unless those of one query take more; of scores and weights; and of keys that are normed
// or rotated on their way to a cache.
constexpr int64_t partial_bytes_at_once = int64_t{64} << 20;
constexpr int64_t product_bytes_at_once = int64_t{64} << 20;
constexpr int64_t staged_bytes_at_once = int64_t{16} << 20;

// GEMMs are for so many queries at least, and so many positions that all of them see. A block has so few queries
// that those are nearly all positions of a long prompt.
constexpr int64_t least_product_queries = 16, least_product_positions = 2 * split_positions, product_queries = 128;

inline int64_t divide_up(int64_t n, int64_t by) {
    return n / by + (n % by != 0);
}

/** The largest number where the product of these, none of them negative, is larger: no memory is. */
inline int64_t product_of(std::initializer_list<int64_t> factors) {
    int64_t product = 1;
    bool too_large = false, zero = false;
    for (const int64_t factor : factors) {
        too_large |= __builtin_mul_overflow(product, factor, &product);
        zero |= factor == 0;
    }
    return zero ? 0 : too_large ? INT64_MAX : product;
}

/** Whether each position of a head is whole cells. */
inline bool in_cells(const DeviceHeads &heads) {
    const int64_t cell = cell_bytes / size_of(heads.dtype);
    return heads.head_dim % cell == 0 && reinterpret_cast<uintptr_t>(heads.data) % cell_bytes == 0 &&
           (heads.tokens <= 1 || heads.token_stride % cell == 0) &&
           (heads.heads <= 1 || heads.head_stride % cell == 0) && (heads.batch <= 1 || heads.batch_stride % cell == 0);
}

inline Access access_to(const DeviceHeads &keys, const DeviceHeads &values) {
    return in_cells(keys) && in_cells(values) ? Access::words : Access::elements;
}

/** Sizes of a call, and of its pieces. */
struct DevicePlan {
    int64_t group, pitch;         // heads of q to one of keys; floats of a partial result
    int64_t longest;              // positions of the longest sequence
    int64_t queries, batch;       // at once
    int64_t staged_tokens;        // of keys, likewise, of one sequence
    bool keys_change;             // normed or rotated
    DType stored_dtype;           // of keys and values as they are read
    bool copy_keys, copy_values;  // read from copies instead of where they are
    bool products;                // of many queries with positions that all of them see, by cells of both
    int64_t partial_bytes, query_bytes, staged_bytes, key_copy_bytes, value_copy_bytes;
    int64_t rounded_query_bytes, score_bytes, weight_bytes;  // for GEMMs

    explicit DevicePlan(const AttentionCall &call) {
        const Heads &q = call.q, &k = call.k;
        constexpr int64_t f32_bytes = sizeof(float);
        group = q.heads / k.heads;
        pitch = divide_up(q.head_dim + split_statistics, 4) * 4;
        longest = 0;
        for (int64_t b = 0; b < q.batch; b++) {
            longest = std::max(longest, call.keys(b));
        }
        keys_change = call.k_norm_weight.data || call.rope;

        // What is divided by is a product of the call's numbers, which have not been compared with any limit.
        const auto rows_of = [&](int64_t tokens) { return product_of({padded_rows(tokens), k.heads}); };
        const auto partial_of = [&](int64_t tokens, int64_t splits) {
            return product_of({rows_of(tokens), splits, pitch, f32_bytes});
        };
        DType common_dtype = DType::f32;  // of keys and values, if they have one
        if (call.cache) {
            common_dtype = call.cache->layout.dtype;
        } else if (k.view.dtype == call.v.view.dtype) {
            common_dtype = k.view.dtype;
        }
        constexpr int64_t product_row_bytes = score_row_bytes + weight_row_bytes;
        // By GEMMs: the splits at both ends of what queries see, and those between.
        const int64_t splits = divide_up(longest, split_positions) + 1,
                      product_splits = 2 * (divide_up(product_queries, split_positions) + 1) +
                                       divide_up(longest, product_positions) + 4;
        const int64_t most = std::min({product_queries, q.tokens,
                                       partial_bytes_at_once / product_of({q.heads, product_splits, pitch, f32_bytes}),
                                       product_bytes_at_once / product_of({q.heads, product_row_bytes})});
        products = most >= least_product_queries && longest >= least_product_positions && common_dtype != DType::f32 &&
                   q.head_dim % (cell_bytes / size_of(common_dtype)) == 0 && has_blaslt();
        // Keys that change go to GEMMs in their own type, as they would from a cache; else nothing is rounded.
        stored_dtype = products || call.cache || !keys_change ? common_dtype : DType::f32;
        const auto must_move = [&](const Heads &heads) {
            return !call.cache && (heads.view.dtype != stored_dtype || (products && !in_cells(device_heads(heads))));
        };
        copy_keys = must_move(k) || (!call.cache && keys_change);
        copy_values = must_move(call.v);
        queries = products ? most : std::clamp<int64_t>(partial_bytes_at_once / partial_of(1, splits), 1, q.tokens);
        partial_bytes = partial_of(queries, products ? product_splits : splits);
        const int64_t product_rows = products ? rows_of(queries) : 0;
        batch = std::clamp<int64_t>(
            std::min(partial_bytes_at_once / partial_bytes,
                     products ? product_bytes_at_once / product_of({product_rows, product_row_bytes}) : q.batch),
            1, q.batch);
        partial_bytes = product_of({partial_bytes, batch});
        query_bytes = product_of({batch, queries, q.heads, q.head_dim, f32_bytes});
        rounded_query_bytes = products ? query_bytes / 2 : 0;
        score_bytes = product_of({batch, product_rows, score_row_bytes});
        weight_bytes = product_of({batch, product_rows, weight_row_bytes});

        const int64_t token_bytes = product_of({k.heads, k.head_dim, f32_bytes});
        const int64_t copy_bytes = product_of({k.batch, k.tokens, k.heads, k.head_dim, size_of(stored_dtype)});
        key_copy_bytes = copy_keys ? copy_bytes : 0;
        value_copy_bytes = copy_values ? copy_bytes : 0;
        staged_tokens = std::clamp<int64_t>(staged_bytes_at_once / token_bytes, 1, std::max<int64_t>(1, k.tokens));
        staged_bytes = keys_change ? product_of({staged_tokens, token_bytes}) : 0;
    }

    /** (query, head of the group) of one head of keys, in whole tiles. */
    int64_t padded_rows(int64_t tokens) const {
        return product_of({divide_up(product_of({tokens, group}), split_rows), split_rows});
    }
};

}  // namespace halyard::cuda

#endif
