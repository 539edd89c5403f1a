// Checks of the arguments that linear layers and feed-forward networks have in common.
#ifndef HALYARD_RUNTIME_CORE_CHECK_SHAPES_H
#define HALYARD_RUNTIME_CORE_CHECK_SHAPES_H

#include "core/check.h"
#include "core/handles/weights.h"

namespace halyard {

/** Extent of all axes but the last. */
int64_t row_count(const View &x);

/** Refuses a tensor whose rows are not `features` wide, which `what` says where they come from. */
void check_width(Checker &check, const View &x, int64_t features, const char *what);
/** Refuses a tensor of another dtype; null ones pass. */
void check_f32(Checker &check, const View &view);
void check_same_rows(Checker &check, const View &x, const View &y);
/** Refuses weights that are not where x is. */
void check_same_device(Checker &check, const View &x, const char *name, const halyard_weights &weights);
/** [features] of any dtype, or an empty view if `tensor` is null. */
View check_vector(Checker &check, const char *name, const DLTensor *tensor, int64_t features);
/** Values of halyard_activation, in the order of the table of kernels. */
constexpr int activation_count = 0
#define HALYARD_KERNEL(name) +1
#include "kernels/epilogue.inc"
#undef HALYARD_KERNEL
    ;

/** `name`: of the field. */
void check_activation(Checker &check, const char *name, int activation, const char *beta_name, float beta);

}  // namespace halyard

#endif
