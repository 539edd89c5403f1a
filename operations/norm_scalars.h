// The scalars of the norms and of their gradients, with values that must be refused.
#ifndef HALYARD_OPERATIONS_NORM_SCALARS_H
#define HALYARD_OPERATIONS_NORM_SCALARS_H

#include <limits>

#include "description.h"

namespace halyard::operations {

inline Scalar eps_scalar(double eps) {
    return {"eps", eps, {-1e-6, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}};
}

/** HALYARD_RMS_... */
inline Scalar flags_scalar(unsigned flags) {
    return {"flags", static_cast<double>(flags), {4.0, 7.0, 2147483648.0}};
}

/** The share of a row that enters the mean square. */
inline Scalar p_scalar(double p) {
    return {
        "p", p, {0.0, -0.5, 1.25, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}};
}

}  // namespace halyard::operations

#endif
