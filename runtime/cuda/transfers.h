// Memory of devices, and what a stream does besides kernels: copies from and to memory of the process, and filling.
#ifndef HALYARD_RUNTIME_CUDA_TRANSFERS_H
#define HALYARD_RUNTIME_CUDA_TRANSFERS_H

#include "cuda/launch.h"

namespace halyard::cuda {

/** Memory of a device; null after a failure. */
char *allocate(Checker &check, int ordinal, int64_t bytes);
/** Waits for what uses it. */
void release(int ordinal, void *data);

/** Rows at one end of a copy. */
struct CopyEnd {
    const void *data;
    bool on_device;
    int64_t pitch;  // in bytes; of no consequence for one row
};

// They do nothing after a failure. `what`: what a message says has failed.

/** Rows of `width` bytes. */
void copy_rows(Launches &launches, const CopyEnd &target, const CopyEnd &source, int64_t width, int64_t rows,
               const char *what);
/** Bytes, however many. */
void copy_bytes(Launches &launches, const CopyEnd &target, const CopyEnd &source, int64_t bytes, const char *what);
/** `bytes` is a multiple of 4. */
void fill_words(Launches &launches, void *data, unsigned word, int64_t bytes);
void fill_floats(Launches &launches, float *data, float value, int64_t count);
/** Until the stream has done all it was given. */
void wait(Launches &launches, const char *what);
/** Whether the stream is being captured. */
bool capturing(Launches &launches);

}  // namespace halyard::cuda

#endif
