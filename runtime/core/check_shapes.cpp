// Checks of the shapes that linear layers, feed-forward networks, attention and blocks have in common.
#include "core/check_shapes.h"

#include "core/device.h"

namespace halyard {

int64_t row_count(const View &x) {
    int64_t rows = 1;
    for (int i = 0; i < x.rank - 1; i++) {
        rows *= x.shape[i];
    }
    return rows;
}

void check_width(Checker &check, const View &x, int64_t features, const char *what) {
    if (!check.failed() && x.width() != features) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s has rows of %lld features, but must have %lld, %s", x.name,
                   static_cast<long long>(x.width()), static_cast<long long>(features), what);
    }
}

void check_f32(Checker &check, const View &view) {
    if (!check.failed() && view.data && view.dtype != DType::f32) {
        check.fail(HALYARD_UNSUPPORTED, "%s must have dtype f32", view.name);
    }
}

void check_same_rows(Checker &check, const View &x, const View &y) {
    if (check.failed()) {
        return;
    }
    bool same = x.rank == y.rank;
    for (int i = 0; i < x.rank - 1 && same; i++) {
        same = x.shape[i] == y.shape[i];
    }
    if (!same) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s must have the rank and the leading shape of %s", y.name, x.name);
    }
}

void check_same_device(Checker &check, const View &x, const char *name, const halyard_weights &weights) {
    check_device(check, name, device_of(weights), x.name, device_of(x), "is packed for");
}

View check_vector(Checker &check, const char *name, const DLTensor *tensor, int64_t features) {
    if (check.failed() || !tensor) {
        return View();
    }
    const View view = check.tensor(name, tensor);
    if (!check.failed() && (view.rank != 1 || view.width() != features)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s must have shape [%lld], but has rank %d and width %lld", name,
                   static_cast<long long>(features), view.rank, static_cast<long long>(view.width()));
    }
    return view;
}

void check_activation(Checker &check, const char *name, int activation, const char *beta_name, float beta) {
    if (!check.failed() && (activation < 0 || activation >= activation_count)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is %d, which is no value of halyard_activation", name, activation);
    }
    if (activation == HALYARD_SWISH) {
        check.swish_beta(beta_name, beta);
    }
}

}  // namespace halyard
