// See mutable_dispatch_table.h.
#include "mutable_dispatch_table.h"

#include <atomic>
#include <mutex>
#include <vector>

#include "runtime/cpu/linear/microkernels.h"

namespace halyard::tune {
namespace {

// The places of the build's variants: HALYARD_VARIANT(kernel, dtype, isa). What no generator made for it is not exchanged.
#define HALYARD_WRITTEN(kernel, dtype, isa) HALYARD_ABSENT(kernel, dtype, isa)
#define HALYARD_SHARED(kernel, dtype, isa, other) HALYARD_ABSENT(kernel, dtype, isa)

enum Index {
#define HALYARD_VARIANT(kernel, dtype, isa) index_##kernel##_##dtype##_##isa,
#define HALYARD_ABSENT(kernel, dtype, isa) HALYARD_VARIANT(kernel, dtype, isa)
#include "kernels/variants.inc"
#undef HALYARD_ABSENT
#undef HALYARD_VARIANT
    table_size
};

struct Entry {
    std::atomic<KernelFunction> ordinary, streamed;  // null: not resolved yet, or there is no such form
};

Entry entries[table_size];
std::mutex mutex;
std::function<KernelForms(int)> resolve;
std::set<int> *recorded = nullptr;  // while calls are recorded

int call(int index, std::atomic<KernelFunction> Entry::*form, void **arguments) {
    KernelFunction function = (entries[index].*form).load(std::memory_order_relaxed);
    if (function == nullptr) {
        const std::lock_guard<std::mutex> lock(mutex);
        if (recorded != nullptr) {
            recorded->insert(index);
            return 0;
        }
        set_kernel(index, resolve(index));
        function = entries[index].*form;
    }
    return function(arguments);
}

TileKernels tiles;

/** The entries of a kernel are those of its types on one instruction set after another. */
KernelVariant place_of(const Variant &variant) {
    return {static_cast<Kernel>(variant.index / (isa_count * dtype_count)),
            static_cast<DType>(variant.index % dtype_count), isas[variant.index / dtype_count % isa_count]};
}

}  // namespace

void set_resolver(std::function<KernelForms(int index)> resolver) {
    resolve = std::move(resolver);
}

void set_kernel(int index, const KernelForms &forms) {
    entries[index].ordinary = forms.ordinary;
    entries[index].streamed = forms.streamed;
}

bool has_kernel(halyard_isa isa, const Variant &variant) {
    const auto [kernel, dtype, own] = place_of(variant);
    return kernel_function(kernel, dtype, isa) == kernel_function(kernel, dtype, own);
}

void set_tile_panels(const Variant &variant, int panels) {
    for (const halyard_isa isa : isas) {
        if (has_kernel(isa, variant)) {
            tiles.set(place_of(variant).kernel, place_of(variant).dtype, index_of(isa), panels);
        }
    }
}

std::set<int> kernels_called_by(const std::function<void()> &make_call) {
    std::vector<KernelForms> before;
    for (Entry &entry : entries) {
        before.push_back({entry.ordinary.exchange(nullptr), entry.streamed.exchange(nullptr)});
    }
    std::set<int> called;
    recorded = &called;
    make_call();
    recorded = nullptr;
    for (int index = 0; index < table_size; index++) {
        set_kernel(index, before[index]);
    }
    return called;
}

}  // namespace halyard::tune

// ---- what takes the place of the library's own ----

extern "C" {
#define HALYARD_VARIANT(kernel, dtype, isa)                                                                            \
    int hk_##kernel##_##dtype##_##isa##_argv(void **arguments) {                                                       \
        return halyard::tune::call(halyard::tune::index_##kernel##_##dtype##_##isa, &halyard::tune::Entry::ordinary,   \
                                   arguments);                                                                         \
    }
#define HALYARD_ABSENT(kernel, dtype, isa)
#include "kernels/variants.inc"
#undef HALYARD_ABSENT
#undef HALYARD_VARIANT
#define HALYARD_STREAMED(kernel, dtype, isa, prefetch)                                                                 \
    int hk_##kernel##_##dtype##_##isa##_streamed_argv(void **arguments) {                                              \
        return halyard::tune::call(halyard::tune::index_##kernel##_##dtype##_##isa, &halyard::tune::Entry::streamed,   \
                                   arguments);                                                                         \
    }
#include "kernels/streamed.inc"
#undef HALYARD_STREAMED
}

const halyard::TileKernels &halyard::tile_kernels() {
    return halyard::tune::tiles;
}
