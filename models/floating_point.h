// The floating-point environment that files are read and tokens are chosen in.
#ifndef HALYARD_MODELS_FLOATING_POINT_H
#define HALYARD_MODELS_FLOATING_POINT_H

#include <cfenv>

namespace halyard::models {

/// While one lives, its thread rounds to nearest and has no traps, so that what comes out does not depend on the
/// caller.
class DefaultFloatingPoint {
public:
    DefaultFloatingPoint() {
        std::fegetenv(&before_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~DefaultFloatingPoint() { std::fesetenv(&before_); }
    DefaultFloatingPoint(const DefaultFloatingPoint &) = delete;
    DefaultFloatingPoint &operator=(const DefaultFloatingPoint &) = delete;

private:
    std::fenv_t before_{};
};

}  // namespace halyard::models

#endif
