// Where the keys and values of one head lie: as the matmul kernels read packed weights.
//
// Positions go in blocks of 512 (k_block), each with its keys and then its values:
//   keys    [position / 16][feature][position % 16]     a matrix with head_dim inputs and a column per position
//   values  [feature / 16][position][feature % 16]      a matrix with an input per position and head_dim columns
// In bf16 features of keys and positions of values go in pairs (layout/matmul.h). The last block holds as many positions, a
// multiple of 16, as are left of max_positions. Features beyond head_dim are zeros; positions that are not filled hold anything.
#ifndef HALYARD_RUNTIME_LAYOUT_KV_H
#define HALYARD_RUNTIME_LAYOUT_KV_H

#include <algorithm>
#include <cstdint>

#include "layout/dtype.h"
#include "layout/matmul.h"

namespace halyard {

struct KvLayout {
    DType dtype;
    int64_t head_dim;
    int64_t max_positions;

    static constexpr int64_t round_up(int64_t n) { return (n + panel_width - 1) / panel_width * panel_width; }

    /** Inputs of the keys, whole rows of panels: zeros beyond head_dim. */
    int64_t key_inputs() const { return (head_dim + row_inputs(dtype) - 1) / row_inputs(dtype) * row_inputs(dtype); }
    /** Columns of values, zeros beyond head_dim. */
    int64_t value_columns() const { return round_up(head_dim); }
    /** Positions that a block has room for. */
    int64_t block_positions(int64_t block) const {
        return std::min<int64_t>(k_block, round_up(max_positions) - block * k_block);
    }

    // In elements.
    int64_t block_offset(int64_t block) const { return block * k_block * (key_inputs() + value_columns()); }
    int64_t values_offset(int64_t block) const { return block_offset(block) + block_positions(block) * key_inputs(); }
    /** From one panel of keys to the next, and from one panel of values to the next. */
    int64_t key_panel_stride() const { return panel_width * key_inputs(); }
    int64_t value_panel_stride(int64_t block) const { return panel_width * block_positions(block); }

    /** Bytes of a head, whole cache lines. */
    int64_t head_bytes() const {
        return (round_up(max_positions) * (key_inputs() + value_columns()) * size_of(dtype) + 63) / 64 * 64;
    }
};

}  // namespace halyard

#endif
