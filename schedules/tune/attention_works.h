// Calls that reach the kernels beside the products of attention: rotary embedding, the cache of keys and values, and
// attention itself with heads so small that the softmax is most of it.
#ifndef HALYARD_TUNE_ATTENTION_WORKS_H
#define HALYARD_TUNE_ATTENTION_WORKS_H

#include <vector>

#include "work_kinds.h"

namespace halyard::tune {

std::vector<WorkKind> attention_work_kinds();

}  // namespace halyard::tune

#endif
