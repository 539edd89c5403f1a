// What feed-forward networks and their gradients check alike.
#ifndef HALYARD_RUNTIME_API_FFN_H
#define HALYARD_RUNTIME_API_FFN_H

#include "core/calls/linear.h"

namespace halyard {

/** All that halyard_ffn reads. */
FfnCall check_ffn_operands(Checker &check, const DLTensor *x, const halyard_weights *up, const halyard_weights *down,
                           const halyard_ffn_options &options);
/** Says in the call's line, behind all tensors, how the matrices are quantized. */
void record_matrices(Checker &check, const FfnCall &call);

}  // namespace halyard

#endif
