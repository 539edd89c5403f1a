// Tensors that hold one f32 for each row of another.
#ifndef HALYARD_RUNTIME_CORE_CALLS_ROW_VECTOR_H
#define HALYARD_RUNTIME_CORE_CALLS_ROW_VECTOR_H

#include "core/check.h"

namespace halyard {

/** The tensor, checked to be f32 with the leading shape of x, or [1] where x has one axis; an empty view if it is null
 *  and not required. `is_output`: it is written, and required. */
View check_row_vector(Checker &check, const char *name, const DLTensor *tensor, const View &x, bool is_output);

/** The vector as rows of one element each, one for each row of x. */
inline View as_column(const View &vector, const View &x) {
    View view = vector;
    if (x.rank > 1) {
        view.shape[view.rank] = view.strides[view.rank] = 1;
        view.rank++;
    }
    return view;
}

/** The entries of rows [first, first + count), side by side. */
void gather(const View &vector, int64_t first, int64_t count, float *values);
void scatter(const View &vector, int64_t first, int64_t count, const float *values);

}  // namespace halyard

#endif
