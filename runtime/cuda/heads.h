// Tensors of heads in the memory of a device.
#ifndef HALYARD_RUNTIME_CUDA_HEADS_H
#define HALYARD_RUNTIME_CUDA_HEADS_H

#include <algorithm>

#include "core/calls/attention.h"
#include "core/view.h"
#include "cuda/ops/operations.h"

namespace halyard::cuda {

/** [batch][tokens][heads][head_dim]; strides count elements. */
struct DeviceHeads {
    char *data;
    DType dtype;
    int64_t batch, tokens, heads, head_dim;
    int64_t batch_stride, token_stride, head_stride;

    /** `count` tokens from `first` on. */
    DeviceHeads tokens_from(int64_t first, int64_t count) const {
        DeviceHeads part = *this;
        part.data += first * token_stride * size_of(dtype);
        part.tokens = count;
        return part;
    }
    /** `count` of the batch from `first` on. */
    DeviceHeads batch_from(int64_t first, int64_t count) const {
        DeviceHeads part = *this;
        part.data += first * batch_stride * size_of(dtype);
        part.batch = count;
        return part;
    }
    /** Features [first, first + count) of every head. */
    DeviceHeads features(int64_t first, int64_t count) const {
        DeviceHeads part = *this;
        part.data += first * size_of(dtype);
        part.head_dim = count;
        return part;
    }
};

inline DeviceHeads device_heads(const Heads &h) {
    return {h.view.data, h.view.dtype,   h.batch,        h.tokens,     h.heads,
            h.head_dim,  h.batch_stride, h.token_stride, h.head_stride};
}

/** One after the other. */
inline DeviceHeads compact_heads(void *data, DType dtype, int64_t batch, int64_t tokens, int64_t heads,
                                 int64_t head_dim) {
    return {static_cast<char *>(data), dtype,   batch, tokens, heads, head_dim, tokens * heads * head_dim,
            heads * head_dim,          head_dim};
}

/** to = from, of the same shape, rounded to the dtype of `to`. */
void convert_heads(Checker &check, const halyard_context &context, int ordinal, const DeviceHeads &from,
                   const DeviceHeads &to);

}  // namespace halyard::cuda

#endif
