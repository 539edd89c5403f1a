// Checks of the numbers in options.
#ifndef HALYARD_RUNTIME_CORE_CHECK_OPTIONS_H
#define HALYARD_RUNTIME_CORE_CHECK_OPTIONS_H

#include "core/check.h"

namespace halyard {

inline void check_range(Checker &check, const char *name, int64_t value, int64_t least, int64_t most) {
    if (check.failed() || (value >= least && value <= most)) {
        return;
    }
    if (most == INT64_MAX) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is %lld, but must be at least %lld", name,
                   static_cast<long long>(value), static_cast<long long>(least));
    } else {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is %lld, but must be %lld to %lld", name,
                   static_cast<long long>(value), static_cast<long long>(least), static_cast<long long>(most));
    }
}

}  // namespace halyard

#endif
