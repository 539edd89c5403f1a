// Whether elements of views share memory: the exact answer for any strides, unless it takes too long to find.
#ifndef HALYARD_RUNTIME_CORE_OVERLAP_H
#define HALYARD_RUNTIME_CORE_OVERLAP_H

#include "core/check.h"

namespace halyard {

enum class Overlap { none, some, undecided };

/** Whether an element of `a` and one of `b` share a byte. Both are checked and have elements, and their ranges of
 *  addresses meet. */
Overlap overlap(const View &a, const View &b);

/** Whether two elements of a checked view, which has some, share a byte. */
Overlap self_overlap(const View &view);

}  // namespace halyard

#endif
