// The dispatch table, made from the table of kernels, and the detection of instruction sets.
#include "core/dispatch.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "core/system/environment.h"

#define HALYARD_WRITTEN(kernel, dtype, isa) HALYARD_VARIANT(kernel, dtype, isa)

extern "C" {
#define HALYARD_VARIANT(kernel, dtype, isa) int hk_##kernel##_##dtype##_##isa##_argv(void **);
#define HALYARD_SHARED(kernel, dtype, isa, other)
#define HALYARD_ABSENT(kernel, dtype, isa)
#include "kernels/variants.inc"
#undef HALYARD_ABSENT
#undef HALYARD_SHARED
#undef HALYARD_VARIANT
#define HALYARD_STREAMED(kernel, dtype, isa, prefetch) int hk_##kernel##_##dtype##_##isa##_streamed_argv(void **);
#include "kernels/streamed.inc"
#undef HALYARD_STREAMED
}

namespace halyard {
namespace {

constexpr struct {
    halyard_isa isa;
    const char *name;
} known_isas[] = {{HALYARD_ISA_SSE41, "sse41"},
                  {HALYARD_ISA_AVX2, "avx2"},
                  {HALYARD_ISA_AVX512, "avx512"},
                  {HALYARD_ISA_AVX512_BF16, "avx512_bf16"},
                  {HALYARD_ISA_AMX, "amx"},
                  {HALYARD_ISA_NEON, "neon"},
                  {HALYARD_ISA_NEON_FP16, "neon_fp16"},
                  {HALYARD_ISA_NEON_BF16, "neon_bf16"},
                  {HALYARD_ISA_NEON_BFDOT, "neon_bfdot"},
                  {HALYARD_ISA_NEON_BFMMLA, "neon_bfmmla"}};

// [kernel][isa][dtype], flat
constexpr KernelFunction variants[] = {
#define HALYARD_VARIANT(kernel, dtype, isa) hk_##kernel##_##dtype##_##isa##_argv,
#define HALYARD_SHARED(kernel, dtype, isa, other) hk_##kernel##_##dtype##_##other##_argv,
#define HALYARD_ABSENT(kernel, dtype, isa) nullptr,
#include "kernels/variants.inc"
#undef HALYARD_ABSENT
#undef HALYARD_SHARED
#undef HALYARD_VARIANT
};

/** Few calls look here, and they take milliseconds. */
constexpr struct {
    KernelFunction kernel, streamed;
} streamed_forms[] = {
#define HALYARD_STREAMED(kernel, dtype, isa, prefetch)                                                                 \
    {hk_##kernel##_##dtype##_##isa##_argv, hk_##kernel##_##dtype##_##isa##_streamed_argv},
#include "kernels/streamed.inc"
#undef HALYARD_STREAMED
    {nullptr, nullptr}};

constexpr struct {
    const char *name;
    bool built;
} operations[] = {
#define HALYARD_OPERATION(name, built) {#name, built},
#include "kernels/operations.inc"
#undef HALYARD_OPERATION
};

/** HALYARD_MAX_ISA. */
halyard_isa read_cap() {
    const char *const variable = "HALYARD_MAX_ISA", *const value = environment(variable);
    if (!value) {
        return isa_cap_none;
    }
    char takes[128] = "";
    size_t length = 0;
    for (const halyard_isa isa : isas) {
        if (strcmp(value, halyard_isa_name(isa)) == 0) {
            return isa;
        }
        const char *const before = isa == isas[0] ? "" : isa == isas[isa_count - 1] ? " or " : ", ";
        length += snprintf(takes + length, sizeof(takes) - length, "%s%s", before, halyard_isa_name(isa));
    }
    say_ignored(variable, value, takes);
    return isa_cap_none;
}

struct Machine {
    const halyard_isa cap = read_cap();
    bool runs[isa_count], prefers[isa_count];
    bool runs_any = false;

    Machine() {
        for (const halyard_isa isa : isas) {
            const int i = index_of(isa);
            runs[i] = processor_runs(isa);
            prefers[i] = runs[i] && processor_prefers(isa);
            runs_any |= runs[i];
        }
    }
};

HALYARD_AT_LOAD const Machine machine;

/** Whether `isa` may be used: the processor says so in `which`, and the system permits it. The system is asked only where the
 *  processor says so. */
bool usable(const bool (&which)[isa_count], halyard_isa isa) {
    return which[index_of(isa)] && system_permits(isa);
}

}  // namespace

KernelFunction kernel_function(Kernel kernel, DType dtype, halyard_isa isa) {
    return variants[(static_cast<int>(kernel) * isa_count + index_of(isa)) * dtype_count + static_cast<int>(dtype)];
}

KernelFunction streamed_form(KernelFunction function) {
    const auto *form = streamed_forms;
    while (form->kernel && form->kernel != function) {
        form++;
    }
    return form->streamed == form->kernel ? nullptr : form->streamed;
}

KernelVariant variant_of(KernelFunction function) {
    for (const auto &form : streamed_forms) {
        function = function == form.streamed ? form.kernel : function;
    }
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
    cap = std::min(cap, machine.cap);
    int i = index_of(cap);
    if (i < isa_count && usable(machine.runs, cap)) {
        return cap;
    }
    while (--i > 0) {
        if (usable(machine.prefers, isas[i])) {
            return isas[i];
        }
    }
    return isas[0];
}

bool processor_has_kernels() {
    return machine.runs_any;
}

}  // namespace halyard

int halyard_isa_count(void) {
    return std::size(halyard::known_isas);
}

halyard_isa halyard_isa_at(int index) {
    return index >= 0 && index < halyard_isa_count() ? halyard::known_isas[index].isa : static_cast<halyard_isa>(-1);
}

const char *halyard_isa_name(halyard_isa isa) {
    for (const auto &known : halyard::known_isas) {
        if (known.isa == isa) {
            return known.name;
        }
    }
    return nullptr;
}

int halyard_isa_supported(halyard_isa isa) {
    return halyard::is_built(isa) && halyard::usable(halyard::machine.runs, isa);
}

int halyard_isa_preferred(halyard_isa isa) {
    return halyard::is_built(isa) && halyard::usable(halyard::machine.prefers, isa);
}

int halyard_operation_supported(const char *operation) {
    for (const auto &each : halyard::operations) {
        if (operation && strcmp(operation, each.name) == 0) {
            return each.built;
        }
    }
    return 0;
}
