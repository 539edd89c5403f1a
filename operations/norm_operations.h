// Norms and softmax, with their gradients, as operations.
#ifndef HALYARD_OPERATIONS_NORM_OPERATIONS_H
#define HALYARD_OPERATIONS_NORM_OPERATIONS_H

#include "description.h"

namespace halyard::operations {

/** A norm appears once per choice of vectors and options, in the order of their kinds. */
std::vector<Operation> norm_operations();

}  // namespace halyard::operations

#endif
