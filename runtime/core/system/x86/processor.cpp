// What an x86-64 processor runs.
#include "core/dispatch.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace halyard {
namespace {

// clang 14 has no __builtin_cpu_supports("f16c"). Its registers are AVX's, which the caller asks for.
bool cpu_has_f16c() {
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
}

/** AMX with its products of bf16 and of 8-bit integers, and an operating system that saves the tiles. */
bool cpu_has_amx() {
    unsigned eax, ebx, ecx, edx;
    constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24, amx_int8 = 1u << 25, tile_state = 3u << 17;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) || (~edx & (amx_bf16 | amx_tile | amx_int8)) != 0) {
        return false;
    }
    __asm__("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
    return (eax & tile_state) == tile_state;
}

/** Whether this process may use tiles. Linux wants to be asked, from 5.16 on, because a thread's state grows by them: it
 *  refuses where an alternate signal stack is too small for that. Emulators and sandboxes refuse as they like. */
bool ask_for_tiles() {
    constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, a number of XCR0's bits
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
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
    case HALYARD_ISA_AVX512_BF16:
        return processor_runs(HALYARD_ISA_AVX512) && __builtin_cpu_supports("avx512bf16");
    case HALYARD_ISA_AMX:
        return processor_runs(HALYARD_ISA_AVX512) && cpu_has_amx();
    default:
        return false;
    }
}

bool system_permits(halyard_isa isa) {
    if (isa != HALYARD_ISA_AMX) {
        return true;
    }
    enum Answer { none, yes, no };
    static std::atomic<Answer> answer{none};
    Answer first = answer;
    if (first == none) {  // of threads that ask at once, all take the first one's answer
        const Answer own = ask_for_tiles() ? yes : no;
        first = answer.compare_exchange_strong(first, own) ? own : first;
    }
    return first == yes;
}

// Intel's processors take four times as long for a dot product of pairs as for a multiply-add, others as long.
bool processor_prefers(halyard_isa isa) {
    __builtin_cpu_init();
    return isa != HALYARD_ISA_AVX512_BF16 || !__builtin_cpu_is("intel");
}

}  // namespace halyard
