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

/** Dot products of bytes, of ARMv8.4 and of nearly all ARMv8.2. */
bool multiplies_bytes() {
#if defined(__APPLE__)
    return has_feature("hw.optional.arm.FEAT_DotProd");
#else
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
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

constexpr uint64_t arm = 0x41, apple = 0x61;

/** Who designed it, 0 if that is not said. Linux answers in place of the processor's register, which programs may not read. */
uint64_t designer() {
#if defined(__APPLE__)
    return apple;
#else
    if ((getauxval(AT_HWCAP) & HWCAP_CPUID) == 0) {
        return 0;
    }
    uint64_t main_id;
    __asm__("mrs %0, MIDR_EL1" : "=r"(main_id));
    return main_id >> 24 & 0xff;
#endif
}

}  // namespace

bool processor_runs(halyard_isa isa) {
    switch (isa) {
    case HALYARD_ISA_NEON:
        return true;  // every processor on which 64-bit programs run has vectors, multiply-add, conversions of halves
    case HALYARD_ISA_NEON_FP16:
        return computes_halves() && multiplies_bytes();
    case HALYARD_ISA_NEON_BF16:
    case HALYARD_ISA_NEON_BFDOT:
    case HALYARD_ISA_NEON_BFMMLA:
        return processor_runs(HALYARD_ISA_NEON_FP16) && multiplies_bf16();
    default:
        return false;
    }
}

bool system_permits(halyard_isa) {
    return true;
}

// Apple's processors take longer for instructions of bf16 than for a multiply-add of f32. BFMMLA takes no longer than BFDOT on
// Arm's own, and more than twice as long on Qualcomm's.
bool processor_prefers(halyard_isa isa) {
    switch (isa) {
    case HALYARD_ISA_NEON_BF16:
    case HALYARD_ISA_NEON_BFDOT:
        return designer() != apple;
    case HALYARD_ISA_NEON_BFMMLA:
        return designer() == arm;
    default:
        return true;
    }
}

}  // namespace halyard
