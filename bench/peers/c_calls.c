// Calls C functions again and again, for peers in Python whose library has a C interface: no Python runs between the calls.
// A shared library of its own, which c_calls.py loads.
#define _POSIX_C_SOURCE 199309L
#include <time.h>

// A function of at most four pointers or whole numbers.
struct step {
    void *(*function)(void *, void *, void *, void *);
    void *arguments[4];
};

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void call(const struct step *step, long count) {
    for (const struct step *end = step + count; step != end; step++) {
        step->function(step->arguments[0], step->arguments[1], step->arguments[2], step->arguments[3]);
    }
}

// Seconds for `count` calls, each of the `each` steps of one set, where sets are gone round from `first` on. At least one
// call, and as many as fit in `warm_up` seconds, come before and are not counted.
double halyard_bench_repeat(const struct step *steps, long each, long sets, long first, double warm_up, long count) {
    const double end = now() + warm_up;
    long set = first % sets;
    do {
        call(steps + each * set, each);
    } while (now() < end);
    const double start = now();
    for (long i = 0; i < count; i++) {
        set = set + 1 == sets ? 0 : set + 1;
        call(steps + each * set, each);
    }
    return now() - start;
}

// ---- products of CBLAS, whose functions take more: y = x w^T ----

enum { row_major = 101, no_transpose = 111, transpose = 112, packed = 151 };

typedef void (*gemm_type)(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *,
                          int);
typedef void (*gemm_compute_type)(int, int, int, int, int, int, const float *, int, const float *, int, float, float *,
                                  int);

// sizes: rows, inputs, outputs; tensors: x, w, y
void halyard_bench_gemm(gemm_type gemm, const int *sizes, float *const *tensors) {
    gemm(row_major, no_transpose, transpose, sizes[0], sizes[2], sizes[1], 1.0f, tensors[0], sizes[1], tensors[1],
         sizes[1], 0.0f, tensors[2], sizes[2]);
}

void halyard_bench_gemm_packed(gemm_compute_type compute, const int *sizes, float *const *tensors) {
    compute(row_major, no_transpose, packed, sizes[0], sizes[2], sizes[1], tensors[0], sizes[1], tensors[1], sizes[1],
            0.0f, tensors[2], sizes[2]);
}
