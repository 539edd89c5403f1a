// Every operation on tensors of rows. Elementwise functions come from the table of kernels; an operation that has options appears
// once per interesting choice.
#ifndef HALYARD_OPERATIONS_OPERATIONS_H
#define HALYARD_OPERATIONS_OPERATIONS_H

#include <functional>
#include <string>
#include <vector>

#include "description.h"

namespace halyard::operations {

/** Usual values, and those of the operations here. */
constexpr float layer_norm_eps = 1e-5f, rms_norm_eps = 1e-6f, usual_beta = 1.0f, usual_partial_p = 0.0625f;

const std::vector<Operation> &all_operations();

/** The operation with this label; stops the program if there is none. */
const Operation &operation(const std::string &label);

/** The operation with this label, or null. */
const Operation *find_operation(const std::string &label);

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

}  // namespace halyard::operations

#endif
