// What a 64-bit ARM processor runs, as the operating system tells it.
#include "core/dispatch.h"

#if defined(__APPLE__)
#include <sys/sysctl.h>
#else
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace halyard {
namespace {

#if defined(__APPLE__)
bool has_feature(const char *name) {
    int has = 0;
    size_t size = sizeof(has);
    return sysctlbyname(name, &has, &size, nullptr, 0) == 0 && has != 0;
}
#endif

/** Arithmetic with halves, scalars and vectors, of ARMv8.2. */
bool computes_halves() {
#if defined(__APPLE__)
    return has_feature("hw.optional.arm.FEAT_FP16");
#else
    constexpr unsigned long needed = HWCAP_FPHP | HWCAP_ASIMDHP;
    return (getauxval(AT_HWCAP) & needed) == needed;
#endif
}

/** Products of bf16, of ARMv8.6 and of some ARMv8.2. */
bool multiplies_bf16() {
#if defined(__APPLE__)
    return has_feature("hw.optional.arm.FEAT_BF16");
#else
    return (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
#endif
}

/** Whether Apple made it. Linux answers in place of the processor's register, which programs may not read. */
bool is_apples() {
#if defined(__APPLE__)
    return true;
#else
    if ((getauxval(AT_HWCAP) & HWCAP_CPUID) == 0) {
        return false;
    }
    uint64_t main_id;
    __asm__("mrs %0, MIDR_EL1" : "=r"(main_id));
    constexpr uint64_t apple = 0x61;
    return (main_id >> 24 & 0xff) == apple;
#endif
}

}  // namespace

bool processor_runs(halyard_isa isa) {
    switch (isa) {
    case HALYARD_ISA_NEON:
        return true;  // every processor on which 64-bit programs run has vectors, multiply-add, conversions of halves
    case HALYARD_ISA_NEON_FP16:
        return computes_halves();
    case HALYARD_ISA_NEON_BF16:
    case HALYARD_ISA_NEON_BFDOT:
        return computes_halves() && multiplies_bf16();
    default:
        return false;
    }
}

bool system_permits(halyard_isa) {
    return true;
}

// Apple's processors take longer for instructions of bf16 than for a multiply-add of f32.
bool processor_prefers(halyard_isa isa) {
    return isa < HALYARD_ISA_NEON_BF16 || !is_apples();
}

}  // namespace halyard
