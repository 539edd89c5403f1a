// Checks and access of row vectors.
#include "core/calls/row_vector.h"

namespace halyard {
namespace {

float *entry(const View &vector, int64_t row) {
    int64_t offset = 0;
    for (int axis = vector.rank - 1; axis >= 0; axis--) {
        offset += row % vector.shape[axis] * vector.strides[axis];
        row /= vector.shape[axis];
    }
    return reinterpret_cast<float *>(vector.data) + offset;
}

}  // namespace

View check_row_vector(Checker &check, const char *name, const DLTensor *tensor, const View &x, bool is_output) {
    if (check.failed() || (!tensor && !is_output)) {
        return View();
    }
    const View view = is_output ? check.output(name, tensor) : check.tensor(name, tensor);
    if (check.failed()) {
        return view;
    }
    if (view.dtype != DType::f32) {
        check.fail(HALYARD_UNSUPPORTED, "%s must have dtype f32", name);
        return view;
    }
    bool same = view.rank == (x.rank > 1 ? x.rank - 1 : 1);
    for (int i = 0; i < view.rank && same; i++) {
        same = view.shape[i] == (x.rank > 1 ? x.shape[i] : 1);
    }
    if (!same) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s must have the leading shape of %s, or [1] where that has one axis",
                   name, x.name);
    }
    return view;
}

void gather(const View &vector, int64_t first, int64_t count, float *values) {
    for (int64_t i = 0; i < count; i++) {
        values[i] = *entry(vector, first + i);
    }
}

void scatter(const View &vector, int64_t first, int64_t count, const float *values) {
    for (int64_t i = 0; i < count; i++) {
        *entry(vector, first + i) = values[i];
    }
}

}  // namespace halyard
