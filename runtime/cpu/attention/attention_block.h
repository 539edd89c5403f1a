// Attention of a block of queries to the keys and values of one head, block by block of 512 positions: scores, softmax,
// weighted values, and the merging of the blocks' results.
#ifndef HALYARD_RUNTIME_CPU_ATTENTION_ATTENTION_BLOCK_H
#define HALYARD_RUNTIME_CPU_ATTENTION_ATTENTION_BLOCK_H

#include <algorithm>

#include "core/row_iterator.h"
#include "cpu/linear/blocked_rows.h"
#include "cpu/linear/microkernels.h"
#include "cpu/linear/panels.h"
#include "layout/kv.h"

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
};

/** Rows that go through the GEMMs together: the (query, head) pairs of some queries and of some heads that share
 *  keys and values, query by query. */
struct QueryBlock {
    int64_t position = 0;  // of the first query
    int64_t queries = 0, heads = 0;

    int64_t rows() const { return queries * heads; }
};

/** What the products read of queries and weights, rounded to bf16 or not. Those of AMX take none of attention. */
XForm form_of_products(halyard_isa isa, bool rounded, DType cache);

/** Rows of a query block at most; and of those blocks that fill their tiles best. */
constexpr int64_t max_attention_rows = 64;
int64_t best_attention_rows(halyard_isa isa, XForm form, int64_t head_dim);

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

/** One thread's part: buffers and scratch. */
class AttentionBlock {
public:
    /** Of scratch, for query blocks of `rows` rows at most. */
    static int64_t scratch_floats(int64_t rows, const KvLayout &layout);

    /** softcap: 0 for none. rounded: queries and weights go to bf16 before they are multiplied. */
    AttentionBlock(halyard_isa isa, int64_t max_rows, const KvLayout &layout, float scale, float softcap, bool rounded,
                   float *scratch);

    /** Starts a block of queries. Its rows are to be stored at queries(), x_pitch from one to the next; then they are
     *  loaded(). */
    void begin(const QueryBlock &block, const Visibility &visibility);
    float *queries() const { return queries_; }
    void loaded() const { convert(multiplied_queries_, queries_, 0, block_.rows(), 0, layout_.head_dim); }

    /** The blocks of keys in which rows see some: [first_block, end_block). */
    int64_t first_block() const;
    int64_t end_block() const;

    /** What the rows see of one block of keys, and whether the one after it is next. */
    void attend(const char *head, int64_t block, bool more, const PartialResult &result);

    /** The same, merged with what has been added before: blocks are to be added in order. */
    void add(const char *head, int64_t block, bool more);
    /** Another object's attend() of a block. */
    void add(const PartialResult &block);
    /** Of all that has been added; zeros if nothing was. */
    PartialResult result();

private:
    /** A tile of rows, and the positions of the block that some of its rows see. */
    struct Tile {
        int64_t first, end;
        int64_t column, columns;  // whose softmax is taken: those and up to whole
                                  // blocks of lanes
        bool masked;              // not all of the columns are seen by all rows
    };
    /** What is prefetched into the cache during a GEMM: with each prefetch so many bytes of every panel. */
    struct Prefetch {
        const char *data;
        int64_t panel_bytes;
        int64_t step;
    };

    void find_tiles(int64_t block);
    // Keys or values of a block.
    void scores(const Panels &keys, const Panels &next);
    void softmax(const PartialResult &result);
    void weigh(const Panels &values, const Panels &next, const PartialResult &result);
    void repair(const Panels &values, const PartialResult &result, const Tile &tile, int64_t row);
    Panels seen_alone(const Panels &values, int64_t panels, int64_t first, int64_t end);
    Panels widened(const Panels &matrix, int64_t panel, int64_t panels, int64_t input, int64_t inputs, float *memory);
    int64_t panels_at_once(DType dtype, int64_t panels) const;
    Prefetch prefetch_ahead(const Panels &w, int64_t bytes) const;
    Prefetch prefetch_next(const Panels &next, int64_t inputs, int64_t tiles) const;
    void convert(const BlockedRows &into, const float *values, int64_t row, int64_t rows, int64_t column,
                 int64_t columns) const;
    void multiply(const BlockedRows &x, int64_t row, int64_t first, int rows, int64_t tiles, bool prefetch4,
                  const Panels &w, int64_t panels, int64_t inputs, float *sums, int64_t sums_pitch,
                  const Prefetch &prefetch);

    int64_t tile_row(int64_t tile) const { return tile * tile_rows_; }
    int64_t tile_end_row(int64_t tile) const { return std::min((tile + 1) * tile_rows_, block_.rows()); }

    const halyard_isa isa_;
    const int64_t max_rows_;
    const KvLayout &layout_;
    float scale_, softcap_;
    float *queries_, *scores_;                  // [row][x_pitch]
    BlockedRows multiplied_queries_, weights_;  // as they are multiplied: in the same place, or in pairs
    float *statistics_[2];                      // of merged blocks, in turns
    float *factors_;                            // [so far or block][statistics_pitch]
    float *results_[2];                         // of all blocks so far, and of one
    float *widened_;                            // keys and values of a block
    int32_t visible_[max_attention_rows][2];    // first and end, from the tile's column
    float limits_[max_attention_rows][3];       // for the softmax of a tile

    QueryBlock block_;
    Visibility visibility_;
    PartialResult so_far_;
    bool has_result_ = false;
    int tile_rows_ = 0;
    int64_t tiles_ = 0;
    bool prefetch4_ = false, widen_ = false;
    Tile tile_[max_attention_rows];

    Buffer<3, float> x_;
    Buffer<3> pairs_, w_;
    Buffer<4, float> sums_;
    Buffer<2> next_;
    Buffer<2, int32_t> visible_buffer_;
    Buffer<1, float> maximum_, sum_;
    Buffer<2, float> limits_buffer_, s_, before_, of_block_, factors_buffer_, merged_, values_before_, values_;
};

}  // namespace halyard

#endif
