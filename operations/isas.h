// The instruction sets that the library was built for.
#ifndef HALYARD_OPERATIONS_ISAS_H
#define HALYARD_OPERATIONS_ISAS_H

#include <iterator>
#include <vector>

#include "halyard/halyard.h"

namespace halyard::operations {

namespace isa_named {
constexpr halyard_isa sse41 = HALYARD_ISA_SSE41, avx2 = HALYARD_ISA_AVX2, avx512 = HALYARD_ISA_AVX512,
                      avx512_bf16 = HALYARD_ISA_AVX512_BF16, amx = HALYARD_ISA_AMX;
constexpr halyard_isa neon = HALYARD_ISA_NEON, neon_fp16 = HALYARD_ISA_NEON_FP16, neon_bf16 = HALYARD_ISA_NEON_BF16,
                      neon_bfdot = HALYARD_ISA_NEON_BFDOT, neon_bfmmla = HALYARD_ISA_NEON_BFMMLA;
}  // namespace isa_named

/** Weakest first. */
constexpr halyard_isa built_isas[] = {
#define HALYARD_ISA(name) isa_named::name,
#include "kernels/isas.inc"
#undef HALYARD_ISA
};
constexpr halyard_isa weakest_isa = *std::begin(built_isas), strongest_isa = *std::rbegin(built_isas);

/** Whether products of bf16 have bits of their own. */
constexpr bool rounds_otherwise(halyard_isa isa) {
    return isa == HALYARD_ISA_AMX || isa == HALYARD_ISA_NEON_BFDOT || isa == HALYARD_ISA_NEON_BFMMLA;
}

/** Instruction sets of this machine that have fused multiply-add and, whatever the types, the same bits. */
inline std::vector<halyard_isa> fused_isas() {
    std::vector<halyard_isa> isas;
    for (const halyard_isa isa : built_isas) {
        if (isa != HALYARD_ISA_SSE41 && !rounds_otherwise(isa) && halyard_isa_supported(isa) != 0) {
            isas.push_back(isa);
        }
    }
    return isas;
}

}  // namespace halyard::operations

#endif
