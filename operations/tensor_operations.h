// Operations on tensors of other shapes than rows: linear layers and feed-forward networks on matrices, attention, rotation and the
// cache on heads, transformer blocks on sequences.
#ifndef HALYARD_OPERATIONS_TENSOR_OPERATIONS_H
#define HALYARD_OPERATIONS_TENSOR_OPERATIONS_H

#include "description.h"
#include "layers.h"

namespace halyard::operations {

/** A linear layer or network: x, residual, norm_weight, norm_bias, weight, up, weight_down, bias, bias_down, y, as far as it has
 *  them. With a deferred norm it has no reference. */
Operation layer_operation(const Layer &layer);

/** All of them that have a reference. */
const std::vector<Operation> &tensor_operations();

}  // namespace halyard::operations

#endif
