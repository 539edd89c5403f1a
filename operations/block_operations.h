// A transformer block as an operation: x and y of whole sequences, and the tensors that it is made with.
#ifndef HALYARD_OPERATIONS_BLOCK_OPERATIONS_H
#define HALYARD_OPERATIONS_BLOCK_OPERATIONS_H

#include <functional>
#include <vector>

#include "description.h"
#include "reference_block.h"
#include "transformers.h"

namespace halyard::operations {

/** A tensor that a block is made with. The width of the feed-forward network is d_out, as that of layers. */
struct BlockParameter {
    Operand operand;  // named as in halyard_block_weights
    const DLTensor *halyard_block_weights::*tensor;
    // Where the reference takes it from: one of these.
    std::function<WeightMatrix &(BlockValues &)> matrix;
    std::function<Row &(BlockValues &)> vector;
};
/** All that the form has. Of its sizes only the numbers of heads count: the others come with each call. */
std::vector<BlockParameter> block_parameters(const BlockForm &form);
/** An argument of halyard_block_create, of tensors in the order of block_parameters(). Matrices are [out, in]. */
halyard_block_weights block_weights(const BlockForm &form, const DLTensor *const *tensors);

/** x, the parameters and y, of different families: Llama with grouped heads, GPT-2, BERT, and Llama quantized. */
std::vector<Operation> block_operations();

}  // namespace halyard::operations

#endif
