// Attention on GPUs: splits of the positions, their joining, and the weights between products of a prompt.
#ifndef HALYARD_SCHEDULES_GPU_ATTENTION_H
#define HALYARD_SCHEDULES_GPU_ATTENTION_H

#include "Halide.h"
#include "schedules/gpu_heads.h"

namespace halyard::schedules::gpu {

// A block's threads are 16 lanes by 8 slices: 128, as many as a split has positions. A row of 128 features of 16 bits
// has 16 cells.
constexpr int attention_lanes = 16, attention_slices = 8;

/** The stages of a split, see generators/attention_split.cpp; all carry (tile, split, hb) behind what is named here. */
struct AttentionSplit {
    Halide::Func q_cell, key_cell, value_cell;  // (e, r, cell), (w, cell, j)
    Halide::Func dot, score;                    // (r, j)
    Halide::Func lane_top, top, weight;         // (lane, r), (r), (r, j)
    Halide::Func lane_sum, total;               // (lane, r), (r)
    Halide::Func weighted, of_slice;            // (e, r, cell, slice), (e, cell, r, slice)
    Halide::Func out;                           // (i, r)
    Halide::RDom key_cells, parts, each_lane, steps;
    Halide::Var e, w, r, j, lane, cell, slice, i, tile, split, hb;
    int cell_features;
};

void attention_split(const AttentionSplit &stages, bool words, const Halide::Target &target);

/** y(d, head of the group, token, head of keys, batch), each element from all splits. */
struct AttentionJoin {
    Halide::Func y;
    std::vector<Halide::Func> reductions;  // with the variables of y, in the order in which they are computed
    Halide::Var d, member, token, head, batch;
};

void attention_join(const AttentionJoin &stages, const Halide::Target &target);

/** y(d, t) in words of two 16-bit weights, of scores in f32, which have twice as many cells. */
struct AttentionBlockWeights {
    Halide::Func y;
    Halide::Func loaded, results;  // scores by element; the words of y
    Halide::Var d, t;
};

void attention_block_weights(const AttentionBlockWeights &stages, const Halide::Target &target);

}  // namespace halyard::schedules::gpu

#endif
