// A block of queries, the keys it sees, and what it has seen of them.
#ifndef HALYARD_RUNTIME_CPU_ATTENTION_QUERY_BLOCK_H
#define HALYARD_RUNTIME_CPU_ATTENTION_QUERY_BLOCK_H

#include <algorithm>
#include <cstdint>

#include "layout/matmul.h"

namespace halyard {

/** Which keys a query sees: positions [first, end). */
struct Visibility {
    int64_t keys = 0;  // that there are
    bool causal = false;
    int64_t window = 0;  // 0: none; at most `keys`

    int64_t first(int64_t position) const { return window > 0 ? std::max<int64_t>(0, position - window + 1) : 0; }
    int64_t end(int64_t position) const {
        const int64_t ahead = causal ? 1 : window;
        return ahead > 0 ? std::min(keys, position + ahead) : keys;
    }

    /** Whether some queries may see less than all keys. */
    bool limited() const { return causal || window > 0; }
    /** Among the queries at positions [from, to) those at [first_seeing, end_seeing) see a key. */
    int64_t first_seeing(int64_t key, int64_t from, int64_t to) const {
        const int64_t ahead = causal ? 0 : window - 1;
        return limited() ? std::clamp(key - ahead, from, to) : from;
    }
    int64_t end_seeing(int64_t key, int64_t from, int64_t to) const {
        return window > 0 ? std::clamp(key + window, from, to) : to;
    }
};

/** Rows that go through the GEMMs together: the (query, head) pairs of some queries and of some heads that share
 *  keys and values, query by query. */
struct QueryBlock {
    int64_t position = 0;  // of the first query
    int64_t queries = 0, heads = 0;

    int64_t rows() const { return queries * heads; }
};

/** Rows of a query block at most. */
constexpr int64_t max_attention_rows = 64;

/** What rows have seen of some blocks of keys: the maximum of their scores, the sum of the exponentials of the scores
 *  less the maximum, and the values weighted by these. */
struct PartialResult {
    float *statistics;  // [maximum or sum][statistics_pitch]
    float *values;      // [tile_rows][value columns]

    /** Whole vectors of statistics. */
    static constexpr int64_t statistics_pitch(int64_t rows) { return (rows + 15) / 16 * 16; }
    /** Rows of memory for whole tiles. */
    static constexpr int64_t tile_rows(int64_t rows) { return rows > 1 ? rows + max_tile_rows - 1 : rows; }
    static constexpr int64_t floats(int64_t rows, int64_t value_columns) {
        return 2 * statistics_pitch(rows) + tile_rows(rows) * value_columns;
    }
    static PartialResult at(float *memory, int64_t rows) { return {memory, memory + 2 * statistics_pitch(rows)}; }
};

}  // namespace halyard

#endif
