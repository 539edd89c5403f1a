// Attention of many queries to positions that all of them see, as two GEMMs with a softmax between them: its
// result is one more split of theirs (attention_split.cpp).
#ifndef HALYARD_RUNTIME_CUDA_ATTENTION_ATTENTION_PRODUCTS_H
#define HALYARD_RUNTIME_CUDA_ATTENTION_ATTENTION_PRODUCTS_H

#include "cuda/heads.h"
#include "cuda/launch.h"

namespace halyard::cuda {

/** Positions of keys at most in one such split, which are as many columns of scores. */
constexpr int64_t product_positions = 1024;

/** Memory for the scores of a row, and for the weights that they become. */
constexpr int64_t score_row_bytes = product_positions * static_cast<int64_t>(sizeof(float)),
                  weight_row_bytes = score_row_bytes / 2;

/** Heads and sequences one after another, each with `rows` rows of queries (query, head of the group) in memory for
 * `padded_rows`. */
struct ProductSplit {
    const char *queries;       // in the type of keys and values: [sequence][head][row][feature], without padding
    DeviceHeads keys, values;  // as many positions as the split has; rows at multiples of 16 bytes
    int64_t rows, padded_rows;
    float scale, softcap;  // softcap: 0 for none
    char *scores, *weights;
    char *partial;  // of the split: [sequence][head][padded row], the features and two numbers in `pitch` floats
    int64_t partial_pitch;  // in floats
};

/** Puts the work into the stream. `workspace`: see gemm.h. */
void attend_by_products(const halyard_context &context, Launches &launches, const ProductSplit &split, void *workspace);

}  // namespace halyard::cuda

#endif
