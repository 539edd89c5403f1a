// Calls that reach the kernels beside the products of attention: rotary embedding, the cache of keys and values, and
// attention itself with heads so small that the softmax is most of it.
#ifndef HALYARD_TUNE_ATTENTION_CASES_H
#define HALYARD_TUNE_ATTENTION_CASES_H

#include <vector>

#include "case_families.h"

namespace halyard::tune {

std::vector<CaseFamily> attention_case_families();

}  // namespace halyard::tune

#endif
