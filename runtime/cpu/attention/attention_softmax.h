// Between the two GEMMs of attention: scores of a block of keys become weights.
#ifndef HALYARD_RUNTIME_CPU_ATTENTION_ATTENTION_SOFTMAX_H
#define HALYARD_RUNTIME_CPU_ATTENTION_ATTENTION_SOFTMAX_H

#include "core/kernel_call.h"
#include "cpu/attention/row_tiles.h"

namespace halyard {

class AttentionSoftmax {
public:
    /** softcap: 0 for none. */
    AttentionSoftmax(halyard_isa isa, float scale, float softcap)
        : cap_(kernel_function(kernels::attention_softcap, DType::f32, isa)),
          exponentials_(kernel_function(kernels::attention_softmax, DType::f32, isa)), scale_(scale),
          softcap_(softcap) {}

    /** The scores [row][x_pitch] of a tile become exp(score - maximum), 0 of keys that a row does not see; statistics
     *  [maximum or sum][pitch]. */
    void operator()(const RowTiles &tiles, int64_t tile, float *scores, float *statistics, int64_t pitch) {
        const TileKeys &keys = tiles[tile];
        const int64_t row = tiles.row(tile), rows = tiles.end_row(tile) - row;
        scores_.set(scores + row * x_pitch + keys.column, keys.columns, rows, x_pitch);
        if (softcap_ > 0.0f) {
            cap_({.s = scores_, .scale = scale_, .cap = softcap_, .y = scores_});
        }
        visible_.set(tiles.visible(row), 2, rows, 2);
        limits_.set(limits_of_rows_[row], 3, rows, 3);
        maximum_.set(statistics + row, rows);
        sum_.set(statistics + pitch + row, rows);
        exponentials_({.s = scores_,
                       .visible = visible_,
                       .masked = keys.masked,
                       .scale = softcap_ > 0.0f ? 1.0f : scale_,
                       .limits = limits_,
                       .maximum = maximum_,
                       .weights = scores_,
                       .sum = sum_});
    }

private:
    const KernelCall<arguments::AttentionSoftcap> cap_;
    const KernelCall<arguments::AttentionSoftmax> exponentials_;
    const float scale_, softcap_;
    float limits_of_rows_[max_attention_rows][3];
    Buffer<2, float> scores_, limits_;
    Buffer<2, int32_t> visible_;
    Buffer<1, float> maximum_, sum_;
};

}  // namespace halyard

#endif
