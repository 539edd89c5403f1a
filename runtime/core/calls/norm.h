// The scalars of norms, checked.
#ifndef HALYARD_RUNTIME_CORE_CALLS_NORM_H
#define HALYARD_RUNTIME_CORE_CALLS_NORM_H

#include "core/check.h"

namespace halyard {

/** The scalars of an RMSNorm kernel. */
struct RmsNormScalars {
    float eps;
    bool eps_outside_root;
    float weight_offset;
    int32_t moment_width;
};

/** `flags_name`: what the caller knows the flags by. */
inline RmsNormScalars rms_norm_scalars(Checker &check, const char *flags_name, const View &x, float eps, unsigned flags,
                                       float p) {
    constexpr unsigned known = HALYARD_RMS_EPS_OUTSIDE_ROOT | HALYARD_RMS_UNIT_OFFSET;
    check.finite_not_negative("eps", eps);
    if (!check.failed() && (flags & ~known)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is 0x%x, which holds unknown bits", flags_name, flags);
    }
    if (!check.failed() && !(p > 0.0f && p <= 1.0f)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "p is %g, but must be in (0, 1]", static_cast<double>(p));
    }
    if (check.failed()) {
        return {};
    }
    // Rounded up without std::ceil, which clang takes from libm.
    const double product = static_cast<double>(p) * static_cast<double>(x.width());
    const auto whole = static_cast<int32_t>(product);
    return {eps, (flags & HALYARD_RMS_EPS_OUTSIDE_ROOT) != 0, flags & HALYARD_RMS_UNIT_OFFSET ? 1.0f : 0.0f,
            whole + (product > whole)};
}

/** Scalars of a LayerNorm: its eps, and that all features count. */
inline RmsNormScalars layer_norm_scalars(Checker &check, const View &x, float eps) {
    check.finite_not_negative("eps", eps);
    return {eps, false, 0.0f, static_cast<int32_t>(x.width())};
}

}  // namespace halyard

#endif
