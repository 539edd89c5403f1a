// Storage types in the order of the dispatch table.
#ifndef HALYARD_RUNTIME_LAYOUT_DTYPE_H
#define HALYARD_RUNTIME_LAYOUT_DTYPE_H

#include <cstdint>

namespace halyard {

enum class DType : uint8_t {
#define HALYARD_DTYPE(name) name,
#include "kernels/dtypes.inc"
#undef HALYARD_DTYPE
};

constexpr int dtype_count = 0
#define HALYARD_DTYPE(name) +1
#include "kernels/dtypes.inc"
#undef HALYARD_DTYPE
    ;

/** Bytes of one element. */
constexpr int64_t size_of(DType dtype) {
    return dtype == DType::f32 ? 4 : 2;
}

}  // namespace halyard

#endif
