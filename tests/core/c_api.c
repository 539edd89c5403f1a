/* The C interface from C11, as a program of its own: a call, the settings a test gives in the environment, and an
 * enumeration value that only C can pass.
 *
 *     c_api [--expect-isa NAME] [--expect-products NAME] [--expect-threads N] [--expect-other-threads N]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "halyard/halyard.h"

static int failures = 0;

static void expect(int condition, const char *what) {
    if (!condition) {
        fprintf(stderr, "c_api: failed: %s (last error: %s)\n", what, halyard_last_error());
        failures++;
    }
}

static DLTensor row(float *data, int64_t *width) {
    DLTensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.data = data;
    tensor.device.device_type = kDLCPU;
    tensor.ndim = 1;
    tensor.dtype.code = kDLFloat;
    tensor.dtype.bits = 32;
    tensor.dtype.lanes = 1;
    tensor.shape = width;
    return tensor;
}

static halyard_isa strongest_isa(void) {
    int i = halyard_isa_count() - 1;
    while (i > 0 && !halyard_isa_supported(halyard_isa_at(i))) {
        i--;
    }
    return halyard_isa_at(i);
}

int main(int argc, char **argv) {
    float x[4] = {3, -4, 3, 4}, y[4] = {0, 0, 0, 0}, z[2] = {7, 7};
    int64_t four = 4, two = 2;
    DLTensor xs = row(x, &four), ys = row(y, &four), zs = row(z, &two);
    halyard_context *context = NULL;
    int i;

    for (i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--expect-isa") == 0) {
            const char *isa = halyard_isa_name(halyard_context_isa(NULL));
            /* A machine without the instruction set uses the best preferred one below; so does one without a cap. */
            int wanted = 0;
            while (wanted + 1 < halyard_isa_count() &&
                   strcmp(halyard_isa_name(halyard_isa_at(wanted)), argv[i + 1]) != 0) {
                wanted++;
            }
            const char *cap = getenv("HALYARD_MAX_ISA");
            if (!cap || strcmp(cap, argv[i + 1]) != 0 || !halyard_isa_supported(halyard_isa_at(wanted))) {
                while (wanted > 0 && !halyard_isa_preferred(halyard_isa_at(wanted))) {
                    wanted--;
                }
            }
            printf("c_api: instruction set %s\n", isa);
            expect(strcmp(isa, halyard_isa_name(halyard_isa_at(wanted))) == 0,
                   "the default context has the expected isa");
        } else if (strcmp(argv[i], "--expect-refusal") == 0) {
            expect(halyard_bilinear(NULL, &xs, &xs, &ys) == HALYARD_UNSUPPORTED,
                   "a processor without kernels is refused");
            expect(strstr(halyard_last_error(), argv[i + 1]) != NULL, "the message names what the processor lacks");
            return failures != 0;
        } else if (strcmp(argv[i], "--expect-products") == 0) {
            const char *const names[] = {"storage", "full", "bf16", "int8"}; /* in the order of halyard_products */
            expect(strcmp(names[halyard_context_products(NULL)], argv[i + 1]) == 0,
                   "the default context has the expected products");
        } else if (strcmp(argv[i], "--expect-threads") == 0) {
            printf("c_api: %d threads\n", halyard_context_num_threads(NULL));
            expect(halyard_context_num_threads(NULL) == atoi(argv[i + 1]),
                   "the default context has the expected threads");
        } else if (strcmp(argv[i], "--expect-other-threads") == 0) {
            printf("c_api: %d threads\n", halyard_context_num_threads(NULL));
            expect(halyard_context_num_threads(NULL) != atoi(argv[i + 1]), "the default context has other threads");
        }
    }

    expect(halyard_context_create(&context) == HALYARD_OK && context != NULL, "a context is made");
    expect(halyard_context_isa(context) == halyard_context_isa(NULL), "a new context has the default isa");
    expect(halyard_context_num_threads(context) == halyard_context_num_threads(NULL),
           "a new context has the default threads");
    expect(halyard_context_set_max_isa(context, strongest_isa()) == HALYARD_OK, "the isa may be capped");
    for (i = 0; i < halyard_isa_count(); i++) {
        const char *cap = getenv("HALYARD_MAX_ISA");
        if (cap && strcmp(cap, halyard_isa_name(halyard_isa_at(i))) == 0) {
            expect(halyard_context_isa(context) <= halyard_isa_at(i), "the environment caps every context");
        }
    }
    expect(halyard_context_set_max_isa(context, (halyard_isa)99) == HALYARD_INVALID_ARGUMENT, "isa 99 is refused");
    expect(halyard_context_set_max_isa(context, (halyard_isa)-1) == HALYARD_INVALID_ARGUMENT, "isa -1 is refused");
    expect(halyard_isa_name((halyard_isa)99) == NULL, "isa 99 has no name");
    expect(strlen(halyard_status_name((halyard_status)99)) > 0, "status 99 has some name");

    /* Root mean square sqrt(12.5). */
    expect(halyard_rms_norm(context, &xs, NULL, 0.0f, 0, &ys) == HALYARD_OK, "rms_norm succeeds");
    for (i = 0; i < 4; i++) {
        expect(fabs((double)y[i] - x[i] / sqrt(12.5)) < 1e-6, "rms_norm is right");
    }
    expect(halyard_glu_packed(context, &xs, (halyard_glu_layout)99, &zs) == HALYARD_INVALID_ARGUMENT,
           "layout 99 is refused");
    expect(strstr(halyard_last_error(), "layout") != NULL, "the message names layout");
    expect(halyard_glu_packed(context, &xs, (halyard_glu_layout)-1, &zs) == HALYARD_INVALID_ARGUMENT,
           "layout -1 is refused");
    expect(z[0] == 7 && z[1] == 7, "a refused call writes nothing");
    expect(halyard_bilinear_packed(context, &xs, HALYARD_GLU_GATE_UP, &zs) == HALYARD_OK, "bilinear_packed succeeds");
    expect(z[0] == 9 && z[1] == -16, "bilinear_packed is right");
    expect(halyard_bilinear(NULL, &xs, &xs, &xs) == HALYARD_OK && x[1] == 16, "bilinear in place is right");
    halyard_context_destroy(context);

    printf("c_api: %s\n", failures == 0 ? "all right" : "failed");
    return failures == 0 ? 0 : 1;
}
