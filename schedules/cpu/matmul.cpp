// Prefetches in matrix products on processors.
#include "schedules/matmul.h"

namespace halyard::schedules {

using namespace Halide;

Expr prefetch(const Func &next, const Expr &offset, const Expr &panel) {
    const Internal::Call *access = next.value().as<Internal::Call>();
    const Parameter buffer = access->param;
    const Expr address = Internal::Variable::make(type_of<uint8_t *>(), buffer.name(), buffer);
    const Expr stride = Internal::Variable::make(Int(32), buffer.name() + ".stride.1", buffer);
    const Expr prefetched = Internal::Call::make(UInt(8), Internal::Call::prefetch,
                                                 {address, offset + panel * stride, 1, 1}, Internal::Call::Intrinsic);
    return unsafe_promise_clamped(cast<int>(prefetched), 0, 1);
}

}  // namespace halyard::schedules
