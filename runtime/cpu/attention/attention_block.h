// Attention of a block of queries to the keys and values of one head, block by block of 512 positions: scores, softmax,
// weighted values, and the merging of the blocks' results. Rows never wait for others: what a row gets depends on its
// own keys alone.
#ifndef HALYARD_RUNTIME_CPU_ATTENTION_ATTENTION_BLOCK_H
#define HALYARD_RUNTIME_CPU_ATTENTION_ATTENTION_BLOCK_H

#include "cpu/attention/attention_products.h"
#include "cpu/attention/attention_softmax.h"

namespace halyard {

/** One thread's part: buffers and scratch. */
class AttentionBlock {
public:
    /** f32 values of scratch, for query blocks of `rows` rows at most. */
    static int64_t scratch_floats(int64_t rows, const KvLayout &layout);

    /** softcap: 0 for none. rounded: queries and weights go to bf16 before they are multiplied. */
    AttentionBlock(halyard_isa isa, int64_t max_rows, const KvLayout &layout, float scale, float softcap, bool rounded,
                   float *scratch);

    /** Starts a block of queries. Its rows are to be stored at queries(), x_pitch from one to the next; then they are
     *  loaded(). Or, where they are rounded and are in bf16, they are stored at multiplied_queries(). */
    void begin(const QueryBlock &block, const Visibility &visibility);
    bool rounds() const { return multiplied_queries_.rounded; }
    const BlockedRows &multiplied_queries() const { return multiplied_queries_; }
    float *queries() const { return queries_; }
    void loaded() const { convert(multiplied_queries_, queries_, 0, tiles_.rows(), 0, tiles_.layout.head_dim); }

    /** The blocks of keys in which rows see some. */
    int64_t first_block() const { return tiles_.first_block(); }
    int64_t blocks() const { return tiles_.end_block() - tiles_.first_block(); }

    /** What the rows see of one block of keys, and whether the one after it is next. */
    void attend(const char *head, int64_t block, bool more, const PartialResult &result);

    /** attend(), merged with what has been added before: blocks are to be added in order. */
    void add(const char *head, int64_t block, bool more);
    /** Another object's attend() of a block. */
    void add(const PartialResult &block);
    /** The result of all that has been added; zeros if nothing was. */
    PartialResult result();

private:
    void convert(const BlockedRows &into, const float *values, int64_t row, int64_t rows, int64_t column,
                 int64_t columns) const;

    const int64_t max_rows_;
    RowTiles tiles_;
    AttentionProducts products_;
    AttentionSoftmax softmax_;
    float *queries_, *scores_;                  // [row][x_pitch]
    BlockedRows multiplied_queries_, weights_;  // as they are multiplied: in the same place, or in pairs
    float *statistics_[2];                      // of merged blocks, in turns
    float *factors_;                            // [so far or block][statistics_pitch]
    float *results_[2];                         // of all blocks so far, and of one
    float *widened_keys_, *widened_values_;     // of a block

    PartialResult so_far_;
    bool has_result_ = false;
    Buffer<2, float> before_, of_block_, factors_buffer_, merged_, values_before_, values_;
};

}  // namespace halyard

#endif
