// The dispatch table, made from the table of kernels, and the detection of instruction sets.
#include "dispatch.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
#define HALYARD_VARIANT(kernel, dtype, isa) int hk_##kernel##_##dtype##_##isa##_argv(void **);
#define HALYARD_ABSENT(kernel, dtype, isa)
#include "kernels/variants.inc"
#undef HALYARD_ABSENT
#undef HALYARD_VARIANT
}

namespace halyard {
namespace {

constexpr const char *isa_names[] = {
#define HALYARD_ISA(name) #name,
#include "kernels/isas.inc"
#undef HALYARD_ISA
};
static_assert(isa_count == sizeof(isa_names) / sizeof(isa_names[0]), "halyard_isa and the table of kernels differ");

// [kernel][isa][dtype], flat
constexpr KernelFunction variants[] = {
#define HALYARD_VARIANT(kernel, dtype, isa) hk_##kernel##_##dtype##_##isa##_argv,
#define HALYARD_ABSENT(kernel, dtype, isa) nullptr,
#include "kernels/variants.inc"
#undef HALYARD_ABSENT
#undef HALYARD_VARIANT
};

// __builtin_cpu_supports asks the CPU and whether the operating system saves the registers.
bool cpu_runs(int isa) {
    __builtin_cpu_init();
    switch (isa) {
    case HALYARD_ISA_SSE41:
        return __builtin_cpu_supports("sse4.1");
    case HALYARD_ISA_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    case HALYARD_ISA_AVX512:
        return cpu_runs(HALYARD_ISA_AVX2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
    default:
        return false;
    }
}

int isa_named(const char *name) {
    for (int isa = 0; isa < isa_count; isa++) {
        if (strcmp(name, isa_names[isa]) == 0) {
            return isa;
        }
    }
    return -1;
}

struct Machine {
    bool runs[isa_count];
    int best;

    Machine() {
        best = 0;
        const char *variable = getenv("HALYARD_MAX_ISA");
        const int cap = variable ? isa_named(variable) : -1;
        if (variable && cap < 0) {
            fprintf(stderr, "halyard: HALYARD_MAX_ISA is '%s' and ignored; it takes sse41, avx2 or avx512.\n", variable);
        }
        for (int isa = 0; isa < isa_count; isa++) {
            runs[isa] = cpu_runs(isa);
            if (runs[isa] && (cap < 0 || isa <= cap)) {
                best = isa;
            }
        }
    }
};

// Constructed when the library is loaded.
const Machine machine;

}  // namespace

KernelFunction kernel_function(Kernel kernel, DType dtype, halyard_isa isa) {
    return variants[(static_cast<int>(kernel) * isa_count + isa) * dtype_count + static_cast<int>(dtype)];
}

halyard_isa best_isa(halyard_isa cap) {
    int isa = machine.best < cap ? machine.best : cap;
    while (isa > 0 && !machine.runs[isa]) {
        isa--;
    }
    return static_cast<halyard_isa>(isa);
}

}  // namespace halyard

int halyard_isa_count(void) {
    return halyard::isa_count;
}

const char *halyard_isa_name(halyard_isa isa) {
    return isa >= 0 && isa < halyard::isa_count ? halyard::isa_names[isa] : nullptr;
}

int halyard_isa_supported(halyard_isa isa) {
    return isa >= 0 && isa < halyard::isa_count && halyard::machine.runs[isa];
}
