// Activations, gated units and their gradients as operations, from the table of kernels.
#ifndef HALYARD_OPERATIONS_ACTIVATION_OPERATIONS_H
#define HALYARD_OPERATIONS_ACTIVATION_OPERATIONS_H

#include "description.h"

namespace halyard::operations {

/** Elementwise functions of one variable. The Swish family appears with several beta. */
struct Activation {
    std::string label;          // "swish.beta_1.5"
    std::string_view function;  // row of the accuracy table
    bool has_beta;
    float beta;  // 1 where there is none: the table's regions are of beta * x
    /** `beta` is ignored where there is none. */
    std::function<halyard_status(const halyard_context *, const DLTensor *, float beta, DLTensor *)> call;
    std::function<double(double)> reference;
};

const std::vector<Activation> &activations();

/** Gated units on two tensors and in each packed layout. */
std::vector<Operation> activation_operations();

}  // namespace halyard::operations

#endif
