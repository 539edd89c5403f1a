// What an x86-64 processor runs.
#include "core/dispatch.h"

#include <cpuid.h>

namespace halyard {
namespace {

// clang 14 has no __builtin_cpu_supports("f16c"). Its registers are AVX's, which the caller asks for.
bool cpu_has_f16c() {
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
}

}  // namespace

// __builtin_cpu_supports asks the CPU and whether the operating system saves the registers.
bool processor_runs(halyard_isa isa) {
    __builtin_cpu_init();
    switch (isa) {
    case HALYARD_ISA_SSE41:
        return __builtin_cpu_supports("sse4.1");
    case HALYARD_ISA_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_has_f16c();
    case HALYARD_ISA_AVX512:
        return processor_runs(HALYARD_ISA_AVX2) && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    default:
        return false;
    }
}

}  // namespace halyard
