// Attention on GPUs: splits of the positions, their combination, and the probabilities between products of a prompt.
#ifndef HALYARD_SCHEDULES_GPU_ATTENTION_H
#define HALYARD_SCHEDULES_GPU_ATTENTION_H

#include <vector>

#include "Halide.h"

namespace halyard::schedules::gpu {

// A block's threads are 16 lanes by 8 slices: 128, as many as a split has positions. A row of 128 features of 16 bits
// has 16 vectors of 16 bytes.
constexpr int attention_lanes = 16, attention_slices = 8;

/** The stages of a split: q, keys and values by 16-byte vectors, scores, their maximum, probabilities, their sum, and the values
 *  weighted by them. All carry (tile, split, hb) behind what is named here, but for
 *  q_vector, which has no split, and key_vector and value_vector, which have no tile. */
struct AttentionSplit {
    Halide::Func q_vector{"q_cell"};                                  // (e, r, vector)
    Halide::Func key_vector{"key_cell"}, value_vector{"value_cell"};  // (w, vector, j)
    Halide::Func dot{"dot"}, score{"score"};                          // (r, j)
    Halide::Func lane_max{"lane_top"}, row_max{"top"};                // (lane, r), (r)
    Halide::Func probability{"weight"};                               // (r, j)
    Halide::Func lane_sum{"lane_sum"}, total{"total"};                // (lane, r), (r)
    Halide::Func weighted{"weighted"}, of_slice{"of_slice"};          // (e, r, vector, slice), (e, vector, r, slice)
    Halide::RDom key_vectors, parts, each_lane, steps;
    // Element and word of a vector; row of a tile; position of a split; lane; vector; slice; feature or statistic.
    Halide::Var e{"e"}, w{"w"}, r{"r"}, j{"j"}, lane{"lane"}, vector{"cell"}, slice{"slice"}, i{"i"};
    Halide::Var tile{"tile"}, split{"split"}, hb{"hb"};
};

/** out(i, r) from the stages; vectors of so many words and elements. */
void attention_split(const AttentionSplit &stages, Halide::Func out, int words, int elements,
                     const Halide::Target &target);

/** y(d, head of the group, token, head of keys, batch), each element from all splits. */
struct AttentionJoin {
    Halide::Func y;
    std::vector<Halide::Func> reductions;  // with the variables of y, in the order in which they are computed
    Halide::Var d, member, token, head, batch;
};

void attention_join(const AttentionJoin &stages, const Halide::Target &target);

/** y(d, t) in words of two 16-bit probabilities, of scores in f32, which have twice as many vectors. */
struct AttentionBlockWeights {
    Halide::Func y;
    Halide::Func loaded, results;  // scores by element; the words of y
    Halide::Var d, t;
};

void attention_block_weights(const AttentionBlockWeights &stages, const Halide::Target &target);

}  // namespace halyard::schedules::gpu

#endif
