// Codes that a caller hands over, checked.
#ifndef HALYARD_RUNTIME_CORE_CALLS_CODES_H
#define HALYARD_RUNTIME_CORE_CALLS_CODES_H

#include "core/code_formats.h"

namespace halyard {

/** What messages call a halyard_codes and its tensors. */
struct CodesNames {
    const char *all, *matrix, *scales, *zeros, *g_idx;
};
constexpr CodesNames codes_names = {"codes", "codes.matrix", "codes.scales", "codes.zeros", "codes.g_idx"};

/** Checks one halyard_codes; without data only what is known from shapes and dtypes. */
CodeSource check_codes(Checker &check, const CodesNames &names, const halyard_codes &codes, bool with_data);

/** Codes whose numbers are asked for, checked. */
struct DequantizeCall {
    CodeSource codes;
    View y;  // [out, in]
};

}  // namespace halyard

#endif
