// Calls a C function again and again, for peers in Python whose library has a C interface: no Python runs between the
// calls. A shared library of its own, which served.py loads.
#define _POSIX_C_SOURCE 199309L
#include <time.h>

typedef void *(*function_type)(void *, void *, void *);

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// Seconds for `count` calls with arguments[3 * i] and the two after it, where i goes round the sets from `first` on.
// At least one call, and as many as fit in `warm_up` seconds, come before and are not counted.
double halyard_bench_repeat(function_type function, void *const *arguments, long sets, long first, double warm_up,
                            long count) {
    const double end = now() + warm_up;
    void *const *at = arguments + 3 * (first % sets);
    do {
        function(at[0], at[1], at[2]);
    } while (now() < end);
    long set = (first + 1) % sets;
    const double start = now();
    for (long i = 0; i < count; i++) {
        at = arguments + 3 * set;
        function(at[0], at[1], at[2]);
        set = set + 1 == sets ? 0 : set + 1;
    }
    return now() - start;
}
