// The rotation of a pair of features by its angle (Su et al. 2021), which every kernel of rotary position embedding
// has:
//
//     y0 = x0 cos - x1 sin      y1 = x1 cos + x0 sin.
//
// Error of f32, against the exact cosine and sine, in units of u |x| with u = 2^-24 and |x| = hypot(x0, x1): the
// table's entries err by at most u/2 each (and what float64 angles err by, see runtime/core/handles/rope_table.h), which makes at
// most sqrt(1/2); two products and a sum, or a product and a fused multiply-add, each round once: at most 1 for the
// products together and 1 for the sum. So |y - exact| <= 2.71 * 2^-24 * |x|, which is 1.36 ULP of the pair's norm at
// most, plus the smallest denormal. Whatever is stored in 16 bits is rounded once more.
#ifndef HALYARD_GENERATORS_ROTATION_H
#define HALYARD_GENERATORS_ROTATION_H

#include "Halide.h"
#include "fma.h"

namespace halyard {

inline Halide::Expr rotated_first(const Fma &fused, const Halide::Expr &x0, const Halide::Expr &x1,
                                  const Halide::Expr &cosine, const Halide::Expr &sine) {
    return fused.fma(x0, cosine, x1 * sine * -1.0f);
}

inline Halide::Expr rotated_second(const Fma &fused, const Halide::Expr &x0, const Halide::Expr &x1,
                                   const Halide::Expr &cosine, const Halide::Expr &sine) {
    return fused.fma(x1, cosine, x0 * sine);
}

}  // namespace halyard

#endif
