// The instruction sets of the processor that this is compiled for.
#ifndef HALYARD_TESTS_SUPPORT_ISAS_H
#define HALYARD_TESTS_SUPPORT_ISAS_H

#include <vector>

#include "halyard/halyard.h"

namespace halyard::tests {

#if defined(__aarch64__)
constexpr halyard_isa weakest_isa = HALYARD_ISA_NEON, strongest_isa = HALYARD_ISA_NEON_FP16;
#else
constexpr halyard_isa weakest_isa = HALYARD_ISA_SSE41, strongest_isa = HALYARD_ISA_AVX512;
#endif

/** Those of this machine that have fused multiply-add. */
inline std::vector<halyard_isa> fused_isas() {
    std::vector<halyard_isa> isas;
    for (int i = weakest_isa; i <= strongest_isa; i++) {
        const auto isa = static_cast<halyard_isa>(i);
        if (isa != HALYARD_ISA_SSE41 && halyard_isa_supported(isa) != 0) {
            isas.push_back(isa);
        }
    }
    return isas;
}

}  // namespace halyard::tests

#endif
