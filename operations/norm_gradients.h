// The gradients of norms as operations.
#ifndef HALYARD_OPERATIONS_NORM_GRADIENTS_H
#define HALYARD_OPERATIONS_NORM_GRADIENTS_H

#include "description.h"

namespace halyard::operations {

/** Once per interesting choice of weight, options and residual. */
std::vector<Operation> norm_gradients();

}  // namespace halyard::operations

#endif
