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

/** Arithmetic with halves, scalars and vectors, of ARMv8.2. */
bool computes_halves() {
#if defined(__APPLE__)
    int has = 0;
    size_t size = sizeof(has);
    return sysctlbyname("hw.optional.arm.FEAT_FP16", &has, &size, nullptr, 0) == 0 && has != 0;
#else
    constexpr unsigned long needed = HWCAP_FPHP | HWCAP_ASIMDHP;
    return (getauxval(AT_HWCAP) & needed) == needed;
#endif
}

}  // namespace

bool processor_runs(halyard_isa isa) {
    switch (isa) {
    case HALYARD_ISA_NEON:
        return true;  // every processor on which 64-bit programs run has vectors, multiply-add, conversions of halves
    case HALYARD_ISA_NEON_FP16:
        return computes_halves();
    default:
        return false;
    }
}

bool system_permits(halyard_isa) {
    return true;
}

bool processor_prefers(halyard_isa) {
    return true;
}

}  // namespace halyard
