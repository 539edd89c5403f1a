/* The residual update of a Pre-LN transformer block, from C: x is added to the residual stream and the sum normalized,
 * in one pass over memory. Then a call that is refused, and how to read why. */
#include <halyard/halyard.h>
#include <stdio.h>
#include <stdlib.h>

enum { rows = 2, d = 4 };

/* A row-major f32 tensor over memory of the caller's; `shape` must live as long as the view. */
static DLTensor view(float *data, int rank, int64_t *shape) {
    DLTensor tensor = {0};
    tensor.data = data;
    tensor.device.device_type = kDLCPU;
    tensor.ndim = rank;
    tensor.dtype.code = kDLFloat;
    tensor.dtype.bits = 32;
    tensor.dtype.lanes = 1;
    tensor.shape = shape;
    return tensor;
}

static void check(halyard_status status) {
    if (status != HALYARD_OK) {
        fprintf(stderr, "%s: %s\n", halyard_status_name(status), halyard_last_error());
        exit(1);
    }
}

int main(void) {
    float x[rows][d] = {{1, 2, 0, 0}, {1, 0, 0, -2}};
    float residual[rows][d] = {{2, 2, 0, 0}, {0, 1, 1, 1}};
    float weight[d] = {1, 1, 1, 10};
    float y[rows][d];
    int64_t matrix[] = {rows, d};
    int64_t vector[] = {d};

    DLTensor x_view = view(x[0], 2, matrix);
    DLTensor residual_view = view(residual[0], 2, matrix);
    DLTensor weight_view = view(weight, 1, vector);
    DLTensor y_view = view(y[0], 2, matrix);

    /* The null context means the defaults; the new residual stream replaces the old one. */
    check(halyard_add_rms_norm(NULL, &x_view, &residual_view, &weight_view, 0.0f, 0, &residual_view, &y_view));
    for (int row = 0; row < rows; ++row) {
        printf("residual %g %g %g %g, normalized %g %g %g %g\n", residual[row][0], residual[row][1], residual[row][2],
               residual[row][3], y[row][0], y[row][1], y[row][2], y[row][3]);
    }

    vector[0] = 3;
    halyard_status status = halyard_rms_norm(NULL, &x_view, &weight_view, 0.0f, 0, &y_view);
    printf("%s: %s\n", halyard_status_name(status), halyard_last_error());

    fprintf(stderr, "halyard %s on %s\n", halyard_version(), halyard_isa_name(halyard_context_isa(NULL)));
    return status == HALYARD_INVALID_ARGUMENT ? 0 : 1;
}
