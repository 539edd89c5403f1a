// What an x86-64 processor runs.
#include "dispatch.h"

namespace halyard {

// __builtin_cpu_supports asks the CPU and whether the operating system saves the registers.
bool processor_runs(halyard_isa isa) {
    __builtin_cpu_init();
    switch (isa) {
    case HALYARD_ISA_SSE41:
        return __builtin_cpu_supports("sse4.1");
    case HALYARD_ISA_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    case HALYARD_ISA_AVX512:
        return processor_runs(HALYARD_ISA_AVX2) && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    default:
        return false;
    }
}

}  // namespace halyard
