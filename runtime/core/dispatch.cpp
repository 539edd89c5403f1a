// The dispatch table, made from the table of kernels, and the detection of instruction sets.
#include "core/dispatch.h"

#include <cstdio>
#include <cstring>

#include "core/system/environment.h"

extern "C" {
#define HALYARD_VARIANT(kernel, dtype, isa) int hk_##kernel##_##dtype##_##isa##_argv(void **);
#define HALYARD_SHARED(kernel, dtype, other)
#define HALYARD_ABSENT(kernel, dtype, isa)
#include "kernels/variants.inc"
#undef HALYARD_ABSENT
#undef HALYARD_SHARED
#undef HALYARD_VARIANT
}

namespace halyard {
namespace {

constexpr const char *isa_names[] = {"sse41", "avx2", "avx512", "neon", "neon_fp16"};
constexpr int known_isas = sizeof(isa_names) / sizeof(isa_names[0]);
static_assert(HALYARD_ISA_NEON_FP16 == known_isas - 1, "halyard_isa and its names differ");

// [kernel][isa][dtype], flat
constexpr KernelFunction variants[] = {
#define HALYARD_VARIANT(kernel, dtype, isa) hk_##kernel##_##dtype##_##isa##_argv,
#define HALYARD_SHARED(kernel, dtype, other) hk_##kernel##_##dtype##_##other##_argv,
#define HALYARD_ABSENT(kernel, dtype, isa) nullptr,
#include "kernels/variants.inc"
#undef HALYARD_ABSENT
#undef HALYARD_SHARED
#undef HALYARD_VARIANT
};

constexpr struct {
    const char *name;
    bool built;
} operations[] = {
#define HALYARD_OPERATION(name, built) {#name, built},
#include "kernels/operations.inc"
#undef HALYARD_OPERATION
};

/** HALYARD_MAX_ISA. */
int read_cap() {
    const char *const variable = "HALYARD_MAX_ISA", *const value = environment(variable);
    if (!value) {
        return isa_cap_none;
    }
    char takes[128] = "";
    size_t length = 0;
    for (const halyard_isa isa : isas) {
        if (strcmp(value, isa_names[isa]) == 0) {
            return isa;
        }
        const char *const before = isa == isas[0] ? "" : isa == isa_cap_none ? " or " : ", ";
        length += snprintf(takes + length, sizeof(takes) - length, "%s%s", before, isa_names[isa]);
    }
    say_ignored(variable, value, takes);
    return isa_cap_none;
}

struct Machine {
    bool runs[isa_count];
    bool runs_any = false;
    int best;

    Machine() {
        const int cap = read_cap();
        best = isas[0];
        for (const halyard_isa isa : isas) {
            const bool runs_this = processor_runs(isa);
            runs[index_of(isa)] = runs_this;
            runs_any |= runs_this;
            if (runs_this && isa <= cap) {
                best = isa;
            }
        }
    }
};

HALYARD_AT_LOAD const Machine machine;

}  // namespace

KernelFunction kernel_function(Kernel kernel, DType dtype, halyard_isa isa) {
    return variants[(static_cast<int>(kernel) * isa_count + index_of(isa)) * dtype_count + static_cast<int>(dtype)];
}

KernelVariant variant_of(KernelFunction function) {
    int index = 0;
    while (variants[index] != function) {
        index++;
    }
    return {static_cast<Kernel>(index / dtype_count / isa_count), static_cast<DType>(index % dtype_count),
            isas[index / dtype_count % isa_count]};
}

const char *kernel_name(Kernel kernel) {
    static constexpr const char *names[] = {
#define HALYARD_KERNEL(name) #name,
#include "kernels/all.inc"
#undef HALYARD_KERNEL
    };
    return names[static_cast<int>(kernel)];
}

const char *dtype_name(DType dtype) {
    static constexpr const char *names[] = {
#define HALYARD_DTYPE(name) #name,
#include "kernels/dtypes.inc"
#undef HALYARD_DTYPE
    };
    return names[static_cast<int>(dtype)];
}

halyard_isa best_isa(halyard_isa cap) {
    int isa = machine.best < cap ? machine.best : cap;
    while (isa_count > 1 && isa > isas[0] && !machine.runs[index_of(static_cast<halyard_isa>(isa))]) {
        isa--;
    }
    return static_cast<halyard_isa>(isa);
}

bool processor_has_kernels() {
    return machine.runs_any;
}

}  // namespace halyard

int halyard_isa_count(void) {
    return halyard::known_isas;
}

const char *halyard_isa_name(halyard_isa isa) {
    return isa >= 0 && isa < halyard::known_isas ? halyard::isa_names[isa] : nullptr;
}

int halyard_isa_supported(halyard_isa isa) {
    return halyard::is_built(isa) && halyard::machine.runs[halyard::index_of(isa)];
}

int halyard_operation_supported(const char *operation) {
    for (const auto &each : halyard::operations) {
        if (operation && strcmp(operation, each.name) == 0) {
            return each.built;
        }
    }
    return 0;
}
