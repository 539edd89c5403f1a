// The instruction sets of the processor that this is compiled for.
#ifndef HALYARD_TESTS_SUPPORT_ISAS_H
#define HALYARD_TESTS_SUPPORT_ISAS_H

#include "halyard/halyard.h"

namespace halyard::tests {

#if defined(__aarch64__)
constexpr halyard_isa weakest_isa = HALYARD_ISA_NEON, strongest_isa = HALYARD_ISA_NEON_FP16;
#else
constexpr halyard_isa weakest_isa = HALYARD_ISA_SSE41, strongest_isa = HALYARD_ISA_AVX512;
#endif

}  // namespace halyard::tests

#endif
