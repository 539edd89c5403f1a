// See slots.h.
#include "slots.h"

#include <atomic>
#include <map>
#include <mutex>
#include <string_view>

#include "runtime/cpu/linear/microkernels.h"

namespace halyard::tune {
namespace {

using Function = std::atomic<KernelFunction>;

// They are linked as they are: there is nothing to choose.
#define HALYARD_WRITTEN(kernel, dtype, isa) HALYARD_ABSENT(kernel, dtype, isa)

enum Index {
#define HALYARD_VARIANT(kernel, dtype, isa) index_##kernel##_##dtype##_##isa,
#define HALYARD_SHARED(kernel, dtype, isa, other) HALYARD_VARIANT(kernel, dtype, isa)
#define HALYARD_ABSENT(kernel, dtype, isa) HALYARD_VARIANT(kernel, dtype, isa)
#include "kernels/variants.inc"
#undef HALYARD_ABSENT
#undef HALYARD_SHARED
#undef HALYARD_VARIANT
    slot_count
};

struct Named {
    std::string_view kernel, dtype, isa;
    std::string_view of;  // the instruction set whose kernel it has, empty if it has none
};
constexpr Named names[] = {
#define HALYARD_VARIANT(kernel, dtype, isa) {#kernel, #dtype, #isa, #isa},
#define HALYARD_SHARED(kernel, dtype, isa, other) {#kernel, #dtype, #isa, #other},
#define HALYARD_ABSENT(kernel, dtype, isa) {#kernel, #dtype, #isa, {}},
#include "kernels/variants.inc"
#undef HALYARD_ABSENT
#undef HALYARD_SHARED
#undef HALYARD_VARIANT
};

std::mutex mutex;
std::function<KernelFunction(int)> resolve;
std::set<int> *recorded = nullptr;  // while calls are recorded

int answer_first_call(int slot, void **arguments);

template<int slot>
int first_call(void **arguments) {
    return answer_first_call(slot, arguments);
}

constexpr KernelFunction first_calls[] = {
#define HALYARD_VARIANT(kernel, dtype, isa) first_call<index_##kernel##_##dtype##_##isa>,
#define HALYARD_SHARED(kernel, dtype, isa, other) nullptr,
#define HALYARD_ABSENT(kernel, dtype, isa) nullptr,
#include "kernels/variants.inc"
#undef HALYARD_ABSENT
#undef HALYARD_SHARED
#undef HALYARD_VARIANT
};

Function functions[slot_count] = {
#define HALYARD_VARIANT(kernel, dtype, isa) {first_call<index_##kernel##_##dtype##_##isa>},
#define HALYARD_SHARED(kernel, dtype, isa, other) {nullptr},
#define HALYARD_ABSENT(kernel, dtype, isa) {nullptr},
#include "kernels/variants.inc"
#undef HALYARD_ABSENT
#undef HALYARD_SHARED
#undef HALYARD_VARIANT
};

int answer_first_call(int slot, void **arguments) {
    KernelFunction function = nullptr;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        if (recorded != nullptr) {
            recorded->insert(slot);
            return 0;
        }
        function = resolve(slot);
        functions[slot] = function;
    }
    return function(arguments);
}

TileKernels &tiles() {
    static TileKernels table;
    return table;
}

}  // namespace

int slot_of(const Variant &variant) {
    static const std::map<std::string, int> slots = [] {
        std::map<std::string, int> all;
        for (int slot = 0; slot < slot_count; slot++) {
            const auto &[kernel, dtype, isa, of] = names[slot];
            if (isa == of) {
                all[std::string(kernel) + " " + std::string(dtype) + " " + std::string(isa)] = slot;
            }
        }
        return all;
    }();
    const auto found = slots.find(variant.kernel->name + " " + variant.dtype + " " + variant.isa);
    return found == slots.end() ? -1 : found->second;
}

Variant variant_of(int slot) {
    return {find_kernel(std::string(names[slot].kernel)), std::string(names[slot].dtype), std::string(names[slot].isa)};
}

std::set<std::string> isas_with_kernels_of(const std::string &isa) {
    std::set<std::string> isas;
    for (const Named &each : names) {
        if (each.isa == isa && !each.of.empty()) {
            isas.emplace(each.of);
        }
    }
    return isas;
}

void set_resolver(std::function<KernelFunction(int slot)> resolver) {
    resolve = std::move(resolver);
}

void set_slot(int slot, KernelFunction function) {
    functions[slot] = function;
}

void clear_slot(int slot) {
    functions[slot] = first_calls[slot];
}

void set_tile_panels(const Variant &variant, int panels) {
    // The slots of a kernel are those of its types on one instruction set after another.
    const auto dtypes = static_cast<int>(dtype_names().size()), isas = static_cast<int>(isa_names().size());
    for (int slot = 0; slot < slot_count; slot++) {
        const Named &each = names[slot];
        if (each.kernel == variant.kernel->name && each.dtype == variant.dtype && each.of == variant.isa) {
            tiles().set(static_cast<Kernel>(slot / (isas * dtypes)), static_cast<DType>(slot % dtypes),
                        slot / dtypes % isas, panels);
        }
    }
}

std::vector<int> slots_called_by(const std::function<void()> &work) {
    KernelFunction before[slot_count];
    std::set<int> called;
    for (int slot = 0; slot < slot_count; slot++) {
        before[slot] = functions[slot];
        functions[slot] = first_calls[slot];
    }
    recorded = &called;
    work();
    recorded = nullptr;
    for (int slot = 0; slot < slot_count; slot++) {
        functions[slot] = before[slot];
    }
    return {called.begin(), called.end()};
}

}  // namespace halyard::tune

// ---- what takes the place of the library's own ----

extern "C" {
#define HALYARD_VARIANT(kernel, dtype, isa)                                                                            \
    int hk_##kernel##_##dtype##_##isa##_argv(void **arguments) {                                                       \
        return halyard::tune::functions[halyard::tune::index_##kernel##_##dtype##_##isa].load(                         \
            std::memory_order_relaxed)(arguments);                                                                     \
    }
#define HALYARD_SHARED(kernel, dtype, isa, other)
#define HALYARD_ABSENT(kernel, dtype, isa)
#include "kernels/variants.inc"
#undef HALYARD_ABSENT
#undef HALYARD_SHARED
#undef HALYARD_VARIANT
}

const halyard::TileKernels &halyard::tile_kernels() {
    return halyard::tune::tiles();
}
