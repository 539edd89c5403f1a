// The check of tensors of integers.
#include "core/calls/integers.h"

namespace halyard {

Integers check_integers(Checker &check, const char *name, const DLTensor *tensor) {
    Integers result;
    if (!check.not_null(name, tensor)) {
        return result;
    }
    const DLDataType type = tensor->dtype;
    if (type.code != kDLInt || (type.bits != 32 && type.bits != 64) || type.lanes != 1) {
        check.fail(HALYARD_UNSUPPORTED,
                   "%s has dtype code %d, %d bits, %d lanes, but must be int32 or int64 with one lane", name, type.code,
                   type.bits, type.lanes);
        return result;
    }
    if (tensor->ndim != 1 && tensor->ndim != 2) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s has rank %d, but must be [T] or [batch, T]", name, tensor->ndim);
        return result;
    }

    // With an axis for the f32 of an integer, everything else is checked as of other tensors.
    const int rank = tensor->ndim;
    const int64_t words = type.bits / 32;
    int64_t shape[3], strides[3];
    DLTensor as_words = *tensor;
    as_words.dtype = {kDLFloat, 32, 1};
    as_words.ndim = rank + 1;
    if (tensor->shape) {
        int64_t stride = 1;  // of a compact tensor
        for (int i = rank - 1; i >= 0; i--) {
            shape[i] = tensor->shape[i];
            strides[i] = tensor->strides ? tensor->strides[i] : stride;
            if (strides[i] >= 0 && __builtin_mul_overflow(strides[i], words, &strides[i])) {
                strides[i] = INT64_MAX;  // too large for more than one entry
            }
            stride = shape[i];
        }
        shape[rank] = words;
        strides[rank] = 1;
        as_words.shape = shape;
        as_words.strides = strides;
    }
    result.memory = check.tensor_in_words(name, *tensor, as_words);
    if (check.failed()) {
        return result;
    }
    result.data = result.memory.data;
    result.is_int64 = words == 2;
    if (reinterpret_cast<uintptr_t>(result.data) % (type.bits / 8) != 0) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "%s has misaligned data: the address must be a multiple of the element's %d bytes", name,
                   type.bits / 8);
    }
    result.rank = rank;
    result.tokens = shape[rank - 1];
    result.batch = rank == 2 ? shape[0] : 1;
    result.token_stride = result.tokens > 1 ? strides[rank - 1] / words : 0;
    result.batch_stride = result.batch > 1 ? strides[0] / words : 0;
    return result;
}

}  // namespace halyard
