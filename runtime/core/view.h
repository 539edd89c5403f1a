// Views that the library makes itself, of memory that it knows to be in order.
#ifndef HALYARD_RUNTIME_CORE_VIEW_H
#define HALYARD_RUNTIME_CORE_VIEW_H

#include <initializer_list>

#include "core/device.h"

namespace halyard {

/** Sets what follows from shape and strides. */
inline void count_elements(View &view) {
    view.elements = view.span = 1;
    for (int axis = 0; axis < view.rank; axis++) {
        view.elements *= view.shape[axis];
        view.span += (view.shape[axis] - 1) * view.strides[axis];
    }
}

inline View view_of(void *data, DType dtype, Device device, std::initializer_list<int64_t> shape,
                    std::initializer_list<int64_t> strides) {
    View view;
    view.data = static_cast<char *>(data);
    view.dtype = dtype;
    view.on_cuda = device.on_cuda;
    view.device_id = device.device_id;
    view.rank = static_cast<int>(shape.size());
    for (int axis = 0; axis < view.rank; axis++) {
        view.shape[axis] = shape.begin()[axis];
        view.strides[axis] = strides.begin()[axis];
    }
    count_elements(view);
    return view;
}

/** [leading axes of x, width], where x is: rows `pitch` elements apart. */
inline View view_like(const View &x, void *data, DType dtype, int64_t pitch, int64_t width) {
    View view = x;
    view.data = static_cast<char *>(data);
    view.dtype = dtype;
    view.shape[x.rank - 1] = width;
    view.strides[x.rank - 1] = 1;
    for (int axis = x.rank - 2; axis >= 0; axis--) {
        view.strides[axis] = pitch;
        pitch *= x.shape[axis];
    }
    count_elements(view);
    return view;
}

/** As above, with the width of x. */
inline View view_like(const View &x, void *data, DType dtype, int64_t pitch) {
    return view_like(x, data, dtype, pitch, x.width());
}

/** Rows of several heads side by side, as [leading axes of rows, heads, head_dim]. */
inline View split_heads(const View &rows, int64_t heads) {
    View view = rows;
    const int last = view.rank - 1;
    view.rank++;
    view.shape[last + 1] = rows.width() / heads;
    view.strides[last + 1] = 1;
    view.shape[last] = heads;
    view.strides[last] = view.shape[last + 1];
    return view;
}

/** Entries [first, first + count) of an axis; without data where the view has none. */
inline View part_of(const View &view, int axis, int64_t first, int64_t count) {
    View part = view;
    part.data += view.data ? first * view.strides[axis] * size_of(view.dtype) : 0;
    part.shape[axis] = count;
    count_elements(part);
    return part;
}

constexpr DLDataType dlpack_type(DType dtype) {
    return {static_cast<uint8_t>(dtype == DType::bf16 ? kDLBfloat : kDLFloat), static_cast<uint8_t>(8 * size_of(dtype)),
            1};
}

/** For callers of the library. It points to the view's shape and strides. */
inline DLTensor dltensor_of(View &view) {
    return {view.data, device_of(view).dlpack(), view.rank, dlpack_type(view.dtype), view.shape, view.strides, 0};
}

}  // namespace halyard

#endif
