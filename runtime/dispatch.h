// Every compiled kernel, and the choice of the instruction set.
#ifndef HALYARD_RUNTIME_DISPATCH_H
#define HALYARD_RUNTIME_DISPATCH_H

#include "dtype.h"
#include "halyard/halyard.h"

namespace halyard {

enum class Kernel {
#define HALYARD_KERNEL(name) name,
#include "kernels/all.inc"
#undef HALYARD_KERNEL
};

constexpr int kernel_count = 0
#define HALYARD_KERNEL(name) +1
#include "kernels/all.inc"
#undef HALYARD_KERNEL
    ;

/** A kernel's entry point: one pointer per argument, buffers (halide_buffer_t) and scalars, inputs before outputs.
 *  Kernels cannot fail: they check nothing, allocate nothing and start no threads. */
using KernelFunction = int (*)(void **arguments);

/** The variant of `kernel` for `dtype`, its input's unless the table of kernels says otherwise; null if `isa` does not
 *  have it. */
KernelFunction kernel_function(Kernel kernel, DType dtype, halyard_isa isa);

/** The best instruction set of this machine not above `cap` and not above HALYARD_MAX_ISA. */
halyard_isa best_isa(halyard_isa cap);

constexpr halyard_isa isa_cap_none = HALYARD_ISA_AVX512;
constexpr int isa_count = isa_cap_none + 1;

}  // namespace halyard

#endif
