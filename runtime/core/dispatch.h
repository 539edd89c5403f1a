// Every compiled kernel, and the choice of the instruction set.
#ifndef HALYARD_RUNTIME_CORE_DISPATCH_H
#define HALYARD_RUNTIME_CORE_DISPATCH_H

#include "halyard/config.h"
#include "halyard/halyard.h"
#include "layout/dtype.h"

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

/** A kernel that takes such arguments, see kernel_call.h. */
template<typename Arguments>
struct KernelOf {
    Kernel kernel;
};

/** A kernel's entry point: one pointer per argument, buffers (halide_buffer_t) and scalars, inputs before outputs.
 *  Kernels cannot fail: they check nothing, allocate nothing and start no threads. */
using KernelFunction = int (*)(void **arguments);

/** The variant of `kernel` for `dtype`, its input's unless the table of kernels says otherwise; null if `isa` does not
 *  have it. */
KernelFunction kernel_function(Kernel kernel, DType dtype, halyard_isa isa);

/** What a function of the table is for, its instruction set being the least one that has it. */
struct KernelVariant {
    Kernel kernel;
    DType dtype;
    halyard_isa isa;
};
KernelVariant variant_of(KernelFunction function);

/** Whether this library has kernels for `dtype`. */
constexpr bool is_built(DType dtype) {
    return dtype == DType::f32 ? HALYARD_HAS_F32 : dtype == DType::f16 ? HALYARD_HAS_F16 : HALYARD_HAS_BF16;
}

const char *kernel_name(Kernel kernel);
const char *dtype_name(DType dtype);

/** The best instruction set of this machine not above `cap` and not above HALYARD_MAX_ISA. */
halyard_isa best_isa(halyard_isa cap);

/** Whether this machine runs any. Where it does not, no call may come as far as a kernel. */
bool processor_has_kernels();

/** The names of halyard_isa's values. */
namespace isa_named {
constexpr halyard_isa sse41 = HALYARD_ISA_SSE41, avx2 = HALYARD_ISA_AVX2, avx512 = HALYARD_ISA_AVX512;
constexpr halyard_isa neon = HALYARD_ISA_NEON, neon_fp16 = HALYARD_ISA_NEON_FP16;
}  // namespace isa_named

/** The instruction sets that this library is built for: those of one processor, which follow each other in halyard_isa. */
constexpr halyard_isa isas[] = {
#define HALYARD_ISA(name) isa_named::name,
#include "kernels/isas.inc"
#undef HALYARD_ISA
};
constexpr int isa_count = sizeof(isas) / sizeof(isas[0]);
constexpr halyard_isa isa_cap_none = isas[isa_count - 1];
static_assert(isa_cap_none - isas[0] == isa_count - 1, "the processor's instruction sets do not follow each other");

/** Where a table of this library's instruction sets holds `isa`. */
constexpr int index_of(halyard_isa isa) {
    return isa - isas[0];
}

/** Whether this library has kernels for `isa`. */
constexpr bool is_built(int isa) {
    return isa >= isas[0] && isa <= isa_cap_none;
}

/** Whether processor and operating system run `isa`, one of `isas`. For each processor in a folder of its own. */
bool processor_runs(halyard_isa isa);

}  // namespace halyard

#endif
