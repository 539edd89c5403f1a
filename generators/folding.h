// A norm's weight in the matrix behind it: w (factor + offset), factor of the input that w belongs to.
#ifndef HALYARD_GENERATORS_FOLDING_H
#define HALYARD_GENERATORS_FOLDING_H

#include "Halide.h"
#include "schedules/storage.h"

namespace halyard {

/** As it is stored, of w as it is stored and a factor in f32. */
inline Halide::Expr folded(const Storage &storage, const Halide::Expr &w, const Halide::Expr &factor,
                           const Halide::Expr &offset) {
    using namespace Halide;
    const Expr by = strict_float(factor + offset);
    const Expr product = reinterpret<uint32_t>(strict_float(storage.widen(w) * by));
    // One NaN, so that the bytes do not depend on the operand that an instruction takes it from.
    const Expr canonical = select((product & 0x7fffffff) > 0x7f800000, cast<uint32_t>(0x7fc00000), product);
    return storage.narrow_result(reinterpret<float>(canonical));
}

}  // namespace halyard

#endif
