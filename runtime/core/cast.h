// Rows from one dtype to another, on the calling thread.
#ifndef HALYARD_RUNTIME_CORE_CAST_H
#define HALYARD_RUNTIME_CORE_CAST_H

#include <algorithm>
#include <climits>

#include "core/check.h"
#include "core/kernel_call.h"

namespace halyard {

/** Rows in memory, `pitch` elements from one to the next. */
struct TypedRows {
    char *data;
    DType dtype;
    int64_t pitch = 0;

    char *row(int64_t index) const { return data + index * pitch * size_of(dtype); }
};

/** Rounds each element of `from` to the dtype of `to`. */
inline void cast(halyard_isa isa, const TypedRows &from, const TypedRows &to, int64_t columns, int64_t rows) {
    // As a rectangle, unless its rows are too far apart for the kernels' 32-bit indices.
    const int64_t at_once = rows == 1 || std::max(from.pitch, to.pitch) < INT_MAX / rows ? rows : 1;
    for (int64_t row = 0; row < rows; row += at_once) {
        Buffer<2> x;
        x.set(from.row(row), columns, at_once, from.pitch);
        if (to.dtype == DType::f32) {
            Buffer<2, float> y;
            y.set(reinterpret_cast<float *>(to.row(row)), columns, at_once, to.pitch);
            kernel_function(kernels::cast_to_f32, from.dtype, isa)({x, y});
        } else {
            Buffer<2> y;
            y.set(to.row(row), columns, at_once, to.pitch);
            kernel_function(to.dtype == DType::f16 ? kernels::cast_to_f16 : kernels::cast_to_bf16, from.dtype,
                            isa)({x, y});
        }
    }
}

/** As cast(), to f32. */
inline void widen(halyard_isa isa, const TypedRows &from, float *to, int64_t to_pitch, int64_t columns, int64_t rows) {
    cast(isa, from, {reinterpret_cast<char *>(to), DType::f32, to_pitch}, columns, rows);
}

/** Floats of memory for a vector in f32: none where it is f32 already, or not there. */
inline int64_t widened_floats(const View &vector) {
    return vector.data && vector.dtype != DType::f32 ? vector.width() : 0;
}

/** A vector in f32, in `memory` if it has to be converted. */
inline View widened(halyard_isa isa, const View &vector, float *memory) {
    View result = vector;
    if (widened_floats(vector) > 0) {
        widen(isa, {vector.data, vector.dtype}, memory, 0, vector.width(), 1);
        result.dtype = DType::f32;
        result.data = reinterpret_cast<char *>(memory);
    }
    return result;
}

}  // namespace halyard

#endif
