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

/** The form of a function of the table that stores whole vectors around the caches, at aligned addresses; null if there is none. */
KernelFunction streamed_form(KernelFunction function);

/** What a function of the table, or its streamed form, is for, its instruction set being the least one that has it. */
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

/** What calls use under `cap` and HALYARD_MAX_ISA: the lower of the two if this machine runs it, else the best preferred
 *  instruction set below it. */
halyard_isa best_isa(halyard_isa cap);

/** Whether this machine runs any. Where it does not, no call may come as far as a kernel. */
bool processor_has_kernels();

/** The names of halyard_isa's values. */
namespace isa_named {
constexpr halyard_isa sse41 = HALYARD_ISA_SSE41, avx2 = HALYARD_ISA_AVX2, avx512 = HALYARD_ISA_AVX512,
                      avx512_bf16 = HALYARD_ISA_AVX512_BF16, amx = HALYARD_ISA_AMX;
constexpr halyard_isa neon = HALYARD_ISA_NEON, neon_fp16 = HALYARD_ISA_NEON_FP16, neon_bf16 = HALYARD_ISA_NEON_BF16,
                      neon_bfdot = HALYARD_ISA_NEON_BFDOT, neon_bfmmla = HALYARD_ISA_NEON_BFMMLA;
}  // namespace isa_named

/** The instruction sets that this library is built for, all of one processor, in the order of halyard_isa. */
constexpr halyard_isa isas[] = {
#define HALYARD_ISA(name) isa_named::name,
#include "kernels/isas.inc"
#undef HALYARD_ISA
};
constexpr int isa_count = sizeof(isas) / sizeof(isas[0]);
/** Above them all. */
constexpr halyard_isa isa_cap_none = static_cast<halyard_isa>(isas[isa_count - 1] + 1);

/** Where `isas` holds each value, negative for those it does not hold. */
struct IsaPositions {
    int8_t of[isa_cap_none + 1] = {};

    constexpr IsaPositions() {
        for (int8_t &position : of) {
            position = -1;
        }
        for (int i = 0; i < isa_count; i++) {
            of[isas[i]] = static_cast<int8_t>(i);
        }
        of[isa_cap_none] = isa_count;
    }
};
constexpr IsaPositions isa_positions;

/** Where a table of this library's instruction sets holds `isa`; isa_cap_none comes after them. */
constexpr int index_of(halyard_isa isa) {
    return isa_positions.of[isa];
}

/** Whether this library has kernels for `isa`. */
constexpr bool is_built(int isa) {
    return isa >= 0 && isa < isa_cap_none && isa_positions.of[isa] >= 0;
}

/** Whether the processor runs `isa`, one of `isas`, and the operating system saves its registers. For each processor in a
 *  folder of its own, as are the next ones. */
bool processor_runs(halyard_isa isa);

/** Whether the operating system lets this process use `isa`, which the processor runs. Where it wants to be asked, that is
 *  done once, when this is first called. */
bool system_permits(halyard_isa isa);

/** Whether `isa`, which the processor runs, is no slower there than a lesser one. */
bool processor_prefers(halyard_isa isa);

}  // namespace halyard

#endif
