// What the gradients of linear layers and feed-forward networks share: the kernels of an activation, and checks.
#ifndef HALYARD_RUNTIME_CORE_CALLS_LAYER_GRADIENTS_H
#define HALYARD_RUNTIME_CORE_CALLS_LAYER_GRADIENTS_H

#include <initializer_list>

#include "core/calls/linear.h"

namespace halyard {

/** What a layer's activation is computed with outside of its GEMM, and the gradients of that. */
struct ActivationKernels {
    KernelOf<arguments::Activation> value;  // identity has none of the first two
    KernelOf<arguments::Glu> gradient;
    bool has_unit;
    KernelOf<arguments::Glu> unit;
    KernelOf<arguments::GluBackward> unit_gradient;
};

/** A valid activation's, those for beta = 1 where that is its beta. */
ActivationKernels activation_kernels(halyard_activation activation, float beta);

/** Refuses weights of which there are no gradients. */
void check_plain_weights(Checker &check, const char *name, const halyard_weights &weights);

/** Sets what `call`, whose weights are set, needs of a layer's activation. The values before it, as the forward call wrote
 *  them, are f32 with the shape of `like` but for the width, or null where nothing reads them: `always` says that something
 *  else does too. `name`: of the activation. */
void check_layer_sums(Checker &check, const char *name, halyard_activation activation, float beta, const DLTensor *sums,
                      const DLTensor *sums_up, bool always, const View &like, LinearBackwardCall &call);

/** A gradient of a vector: null, or f32 [width]. */
View check_vector_gradient(Checker &check, const char *name, const DLTensor *tensor, int64_t width);
/** A gradient of a matrix: null, or f32 [rows, width]. */
View check_matrix_gradient(Checker &check, const char *name, const DLTensor *tensor, int64_t rows, int64_t width);
/** A gradient of a tensor of the call: null, or f32 of its shape. */
View check_input_gradient(Checker &check, const char *name, const DLTensor *tensor, const View &of);

/** Refuses a layout that is none. */
void check_gradient_layout(Checker &check, const char *name, halyard_weight_layout layout);

/** The last that is there, so that a sum over no rows, which is 0, is written where dx, the first, has no elements. */
View any_output(std::initializer_list<const View *> outputs);

/** Refuses outputs that share memory with an input or with each other. */
void check_outputs_apart(Checker &check, std::initializer_list<const View *> outputs,
                         std::initializer_list<const View *> inputs);

}  // namespace halyard

#endif
