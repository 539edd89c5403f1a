// Every operation on tensors of rows. Elementwise functions come from the table of kernels; an operation that has options appears
// once per interesting choice.
#ifndef HALYARD_OPERATIONS_OPERATIONS_H
#define HALYARD_OPERATIONS_OPERATIONS_H

#include <string>
#include <vector>

#include "activation_operations.h"
#include "description.h"

namespace halyard::operations {

/** Usual values, and those of the operations here. */
constexpr float layer_norm_eps = 1e-5f, rms_norm_eps = 1e-6f, usual_beta = 1.0f, usual_partial_p = 0.0625f;

const std::vector<Operation> &all_operations();

/** The operation with this label; stops the program if there is none. */
const Operation &operation(const std::string &label);

/** The operation with this label, or null. */
const Operation *find_operation(const std::string &label);

}  // namespace halyard::operations

#endif
