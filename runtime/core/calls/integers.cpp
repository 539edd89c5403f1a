// The checks of tensors of integers.
#include "core/calls/integers.h"

#include <algorithm>
#include <cstdio>

namespace halyard {
namespace {

void check_integer_type(Checker &check, const char *name, DLDataType type) {
    if (!check.failed() && (type.code != kDLInt || (type.bits != 32 && type.bits != 64) || type.lanes != 1)) {
        check.fail(HALYARD_UNSUPPORTED, "%s has dtype %s, but must be int32 or int64", name, TypeName(type).get());
    }
}

bool has_shape(const DLTensor &tensor, int rank, const int64_t *shape) {
    return tensor.ndim == rank && tensor.shape && std::equal(shape, shape + rank, tensor.shape);
}

/** Type and rank have been checked. */
Integers check_memory(Checker &check, const char *name, const DLTensor &tensor) {
    Integers result;
    if (check.failed()) {
        return result;
    }
    // With an axis for the f32 of an integer, everything else is checked as of other tensors.
    const int rank = tensor.ndim;
    const int bytes = tensor.dtype.bits / 8;
    const int64_t words = bytes / 4;
    int64_t shape[Integers::max_rank + 1], strides[Integers::max_rank + 1];
    DLTensor as_words = tensor;
    as_words.dtype = {kDLFloat, 32, 1};
    as_words.ndim = rank + 1;
    if (tensor.shape) {
        int64_t stride = 1;  // of a compact tensor
        for (int i = rank - 1; i >= 0; i--) {
            shape[i] = tensor.shape[i];
            strides[i] = tensor.strides ? tensor.strides[i] : stride;
            if (strides[i] >= 0 && __builtin_mul_overflow(strides[i], words, &strides[i])) {
                strides[i] = INT64_MAX;  // too large for more than one entry
            }
            if (__builtin_mul_overflow(stride, shape[i], &stride)) {
                stride = INT64_MAX;
            }
        }
        shape[rank] = words;
        strides[rank] = 1;
        as_words.shape = shape;
        as_words.strides = strides;
    }
    result.memory = check.tensor_in_words(name, tensor, as_words);
    if (check.failed()) {
        return result;
    }
    result.data = result.memory.data;
    result.is_int64 = words == 2;
    if (reinterpret_cast<uintptr_t>(result.data) % bytes != 0) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "%s has misaligned data: the address must be a multiple of the element's %d bytes", name, bytes);
    }
    result.rank = rank;
    for (int i = 0; i < rank; i++) {
        result.shape[i] = shape[i];
        result.strides[i] = shape[i] > 1 ? strides[i] / words : 0;
    }
    return result;
}

/** "ids[2, 1]" of number 5 among [3, 2]. */
struct PlaceName {
    PlaceName(const char *name, const Integers &integers, int64_t number) {
        int64_t index[Integers::max_rank];
        for (int axis = integers.rank - 1; axis >= 0; axis--) {
            index[axis] = number % integers.shape[axis];
            number /= integers.shape[axis];
        }
        int length = snprintf(text, sizeof(text), "%s[", name);
        for (int axis = 0; axis < integers.rank; axis++) {
            length += snprintf(text + length, sizeof(text) - length, axis > 0 ? ", %lld" : "%lld",
                               static_cast<long long>(index[axis]));
        }
        snprintf(text + length, sizeof(text) - length, "]");
    }
    char text[128];
};

}  // namespace

Integers check_integers(Checker &check, const char *name, const DLTensor *tensor) {
    if (!check.not_null(name, tensor)) {
        return Integers();
    }
    check_integer_type(check, name, tensor->dtype);
    if (!check.failed() && tensor->ndim != 1 && tensor->ndim != 2) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s has rank %d, but must be [T] or [batch, T]", name, tensor->ndim);
    }
    Integers result = check_memory(check, name, *tensor);
    if (!check.failed()) {
        const int last = result.rank - 1;
        result.tokens = result.shape[last];
        result.token_stride = result.strides[last];
        result.batch = last > 0 ? result.shape[0] : 1;
        result.batch_stride = last > 0 ? result.strides[0] : 0;
    }
    return result;
}

Integers check_integers_of_rows(Checker &check, const char *name, const DLTensor *tensor, const View &x) {
    if (!check.not_null(name, tensor)) {
        return Integers();
    }
    check_integer_type(check, name, tensor->dtype);
    static constexpr int64_t one = 1;
    if (!check.failed() && !(x.rank > 1 ? has_shape(*tensor, x.rank - 1, x.shape) : has_shape(*tensor, 1, &one))) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s must have the leading shape of %s, or [1] where that has one axis",
                   name, x.name);
    }
    return check_memory(check, name, *tensor);
}

Integers check_integers_like(Checker &check, const char *name, const DLTensor *tensor, const View &x) {
    if (!check.not_null(name, tensor)) {
        return Integers();
    }
    check_integer_type(check, name, tensor->dtype);
    if (!check.failed() && x.rank > Integers::max_rank) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s has rank %d, but must have rank 1 to %d", x.name, x.rank,
                   Integers::max_rank);
    }
    if (!check.failed() && !has_shape(*tensor, x.rank, x.shape)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s must have the shape of %s", name, x.name);
    }
    return check_memory(check, name, *tensor);
}

void check_in_range(Checker &check, const char *name, const Integers &integers, const char *bound, int64_t end,
                    const int64_t *ignored) {
    const int64_t count = check.failed() ? 0 : integers.count();
    for (int64_t number = 0; number < count && !check.failed(); number++) {
        const int64_t value = integers.in_order(number);
        if ((value < 0 || value >= end) && !(ignored && value == *ignored)) {
            check.fail(HALYARD_INVALID_ARGUMENT, "%s is %lld, but %s is %lld", PlaceName(name, integers, number).text,
                       static_cast<long long>(value), bound, static_cast<long long>(end));
        }
    }
}

}  // namespace halyard
