// Checked tensors of integers that name tokens: their ids, their positions.
#ifndef HALYARD_RUNTIME_CORE_CALLS_INTEGERS_H
#define HALYARD_RUNTIME_CORE_CALLS_INTEGERS_H

#include "core/check.h"

namespace halyard {

/** [T] or [batch, T] of int32 or int64. Strides count elements; that of an axis with one entry is 0. */
struct Integers {
    const char *data = nullptr;
    bool is_int64 = false;
    int rank = 1;
    int64_t batch = 1, tokens = 0;
    int64_t batch_stride = 0, token_stride = 0;
    View memory;  // the same, each integer as one or two f32

    int64_t at(int64_t b, int64_t t) const {
        const int64_t i = b * batch_stride + t * token_stride;
        return is_int64 ? reinterpret_cast<const int64_t *>(data)[i] : reinterpret_cast<const int32_t *>(data)[i];
    }
};

Integers check_integers(Checker &check, const char *name, const DLTensor *tensor);

}  // namespace halyard

#endif
