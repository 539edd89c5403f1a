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

}  // namespace

bool processor_runs(halyard_isa isa) {
    switch (isa) {
    case HALYARD_ISA_NEON:
        return true;  // every processor on which 64-bit programs run has vectors, multiply-add, conversions of halves
    case HALYARD_ISA_NEON_FP16:
        return computes_halves();
    case HALYARD_ISA_NEON_BF16:
        return computes_halves() && multiplies_bf16();
    default:
        return false;
    }
}

// Apple's processors take longer for instructions of bf16 than for a multiply-add of f32.
bool processor_prefers([[maybe_unused]] halyard_isa isa) {
#if defined(__APPLE__)
    return isa != HALYARD_ISA_NEON_BF16;
#else
    return true;
#endif
}

}  // namespace halyard
