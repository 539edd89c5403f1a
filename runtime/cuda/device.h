// The devices in use, and the kernels that are loaded on them.
#ifndef HALYARD_RUNTIME_CUDA_DEVICE_H
#define HALYARD_RUNTIME_CUDA_DEVICE_H

#include <atomic>

#include "core/dispatch.h"
#include "cuda/driver.h"

namespace halyard::cuda {

/** Whether buffers are given in words of 32 bits (see schedules/element_access.h) or element by element; `staged` in words, by
 *  kernels that read a row once, into shared memory. */
enum class Access { words, elements, staged };
constexpr int access_count = 3;
constexpr const char *access_names[access_count] = {"cuda_words", "cuda_elements", "cuda_staged"};

/** What a thread that takes words reads or writes at once: where buffers begin, rows too, is a multiple then. */
constexpr int64_t cell_bytes = 16;

/** What runs on the processor to launch a kernel; null where there is no such kernel for devices. */
KernelFunction host_function(Kernel kernel, DType dtype, Access access);

struct Device {
    Context context;                            // the primary one
    int compute_capability;                     // 90 for 9.0
    int shared_bytes;                           // that a block may have
    std::atomic<Module> modules[kernel_count];  // one for each kernel
    std::atomic<Function> functions[kernel_count][dtype_count][access_count];
    std::atomic<void *> blaslt;  // what is known of cuBLASLt there, see blaslt.cpp
};

/** The device, its primary context retained; null, with a message in `check`, where there is none such. */
Device *device(Checker &check, const Driver &driver, int ordinal);

/** A kernel that is loaded at the first call, with the device's context current. */
Function function(Checker &check, const Driver &driver, Device &device, Kernel kernel, DType dtype, Access access);

/** The code for a device: assembled for it or, for those not known when the library was built, to be compiled by the
 *  driver. */
const void *image(Kernel kernel, int compute_capability);

/** PTX, which the driver compiles for whatever device there is. */
const void *ptx(Kernel kernel);

}  // namespace halyard::cuda

#endif
