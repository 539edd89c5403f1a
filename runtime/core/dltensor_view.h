// DLTensors for calls inside the library.
#ifndef HALYARD_RUNTIME_CORE_DLTENSOR_VIEW_H
#define HALYARD_RUNTIME_CORE_DLTENSOR_VIEW_H

#include "core/device.h"

namespace halyard {

constexpr DLDataType dlpack_type(DType dtype) {
    return {static_cast<uint8_t>(dtype == DType::bf16 ? kDLBfloat : kDLFloat), static_cast<uint8_t>(8 * size_of(dtype)),
            1};
}

/** Memory where a tensor is. */
struct TypedMemory {
    char *data;
    DType dtype;

    TypedMemory from(int64_t element) const { return {data + element * size_of(dtype), dtype}; }
};

/** A DLTensor with its own shape and strides, to which it points. */
class LocalTensor {
public:
    /** The tensor that was checked. */
    explicit LocalTensor(const View &view) {
        set(view, {view.data, view.dtype}, view.rank);
        for (int i = 0; i < view.rank; i++) {
            shape_[i] = view.shape[i];
            strides_[i] = view.strides[i];
        }
    }

    /** [leading axes of x, width], where x is: rows `pitch` elements apart. */
    LocalTensor(const View &x, const TypedMemory &memory, int64_t pitch, int64_t width) {
        set(x, memory, x.rank);
        set_leading(x, pitch);
        set_axis(x.rank - 1, width, 1);
    }

    /** [leading axes of x, heads, head_dim], where x is: tokens `pitch` elements apart. */
    LocalTensor(const View &x, const TypedMemory &memory, int64_t pitch, int64_t heads, int64_t head_dim) {
        set(x, memory, x.rank + 1);
        set_leading(x, pitch);
        set_axis(x.rank - 1, heads, head_dim);
        set_axis(x.rank, head_dim, 1);
    }

    LocalTensor(const LocalTensor &) = delete;
    LocalTensor &operator=(const LocalTensor &) = delete;

    DLTensor *get() { return &tensor_; }

    /** Leaves the last `count` entries of an axis. */
    void keep_last(int axis, int64_t count) {
        const int64_t skipped = (shape_[axis] - count) * strides_[axis];
        tensor_.data = static_cast<char *>(tensor_.data) + skipped * (tensor_.dtype.bits / 8);
        shape_[axis] = count;
    }

private:
    void set(const View &x, const TypedMemory &memory, int rank) {
        tensor_.data = memory.data;
        tensor_.device = place_of(x).dlpack();
        tensor_.ndim = rank;
        tensor_.dtype = dlpack_type(memory.dtype);
        tensor_.shape = shape_;
        tensor_.strides = strides_;
        tensor_.byte_offset = 0;
    }
    void set_axis(int axis, int64_t extent, int64_t stride) {
        shape_[axis] = extent;
        strides_[axis] = stride;
    }
    void set_leading(const View &x, int64_t pitch) {
        for (int axis = x.rank - 2; axis >= 0; axis--) {
            set_axis(axis, x.shape[axis], pitch);
            pitch *= x.shape[axis];
        }
    }

    DLTensor tensor_;
    int64_t shape_[max_rank], strides_[max_rank];
};

}  // namespace halyard

#endif
