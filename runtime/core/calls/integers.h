// Checked tensors of integers that name tokens: their ids, their positions, what they should have been.
#ifndef HALYARD_RUNTIME_CORE_CALLS_INTEGERS_H
#define HALYARD_RUNTIME_CORE_CALLS_INTEGERS_H

#include "core/check.h"

namespace halyard {

/** Up to three axes of int32 or int64. Strides count elements; that of an axis with one entry is 0. */
struct Integers {
    static constexpr int max_rank = halyard::max_rank - 1;

    const char *data = nullptr;
    bool is_int64 = false;
    int rank = 1;
    int64_t shape[max_rank] = {}, strides[max_rank] = {};
    View memory;  // the same, each integer as one or two f32

    // These are for [T] and [batch, T].
    int64_t batch = 1, tokens = 0;
    int64_t batch_stride = 0, token_stride = 0;

    int64_t at(int64_t b, int64_t t) const { return value(b * batch_stride + t * token_stride); }

    int64_t count() const {
        int64_t integers = 1;
        for (int axis = 0; axis < rank; axis++) {
            integers *= shape[axis];
        }
        return integers;
    }
    /** The integer of this number in row-major order. */
    int64_t in_order(int64_t number) const {
        int64_t offset = 0;
        for (int axis = rank - 1; axis >= 0; axis--) {
            offset += number % shape[axis] * strides[axis];
            number /= shape[axis];
        }
        return value(offset);
    }

private:
    int64_t value(int64_t offset) const {
        return is_int64 ? reinterpret_cast<const int64_t *>(data)[offset]
                        : reinterpret_cast<const int32_t *>(data)[offset];
    }
};

/** [T] or [batch, T]. */
Integers check_integers(Checker &check, const char *name, const DLTensor *tensor);

/** One for each row of x: the leading shape of x, or [1] where x has one axis. */
Integers check_integers_of_rows(Checker &check, const char *name, const DLTensor *tensor, const View &x);

/** One for each element of x. */
Integers check_integers_like(Checker &check, const char *name, const DLTensor *tensor, const View &x);

/** Refuses integers outside [0, end), which `bound` says where it comes from. The one that `ignored` points to may be anywhere. */
void check_in_range(Checker &check, const char *name, const Integers &integers, const char *bound, int64_t end,
                    const int64_t *ignored = nullptr);

}  // namespace halyard

#endif
