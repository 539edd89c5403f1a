// Which operations the library was built with (operations.cmake).
#ifndef HALYARD_OPERATIONS_BUILT_H
#define HALYARD_OPERATIONS_BUILT_H

#include <string_view>

#include "halyard/halyard.h"

namespace halyard::operations {

/** Whether it was built with fewer operations, dtypes or instruction sets than there are. */
#ifdef HALYARD_TESTS_SUBSET
constexpr bool is_subset = true;
#else
constexpr bool is_subset = false;
#endif

/** Whether a public function is, which is named without its halyard_. */
inline bool is_built(std::string_view function) {
    constexpr struct {
        std::string_view name;
        const char *operation;
    } functions[] = {
#define HALYARD_FUNCTION(function, operation) {#function, #operation},
#include "kernels/functions.inc"
#undef HALYARD_FUNCTION
    };
    for (const auto &[name, operation] : functions) {
        if (name == function) {
            return halyard_operation_supported(operation) != 0;
        }
    }
    return false;
}

}  // namespace halyard::operations

#endif
