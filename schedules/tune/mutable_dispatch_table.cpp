// See mutable_dispatch_table.h.
#include "mutable_dispatch_table.h"

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string_view>

#include "runtime/cpu/linear/microkernels.h"

namespace halyard::tune {
namespace {

// The variants of the build: HALYARD_VARIANT(kernel, dtype, isa), or HALYARD_SHARED or HALYARD_ABSENT of the same. Those that
// no generator made are linked as they are.
#define HALYARD_WRITTEN(kernel, dtype, isa) HALYARD_ABSENT(kernel, dtype, isa)

enum Index {
#define HALYARD_VARIANT(kernel, dtype, isa) index_##kernel##_##dtype##_##isa,
#define HALYARD_SHARED(kernel, dtype, isa, other) HALYARD_VARIANT(kernel, dtype, isa)
#define HALYARD_ABSENT(kernel, dtype, isa) HALYARD_VARIANT(kernel, dtype, isa)
#include "kernels/variants.inc"
#undef HALYARD_ABSENT
#undef HALYARD_SHARED
#undef HALYARD_VARIANT
    table_size
};

int answer_first_call(int index, void **arguments);

template<int index>
int first_call(void **arguments) {
    return answer_first_call(index, arguments);
}

struct Entry {
    const char *kernel, *dtype, *isa;
    std::string_view of;        // the instruction set whose kernel it has, empty if none
    KernelFunction first_call;  // null if that is another or none
};
constexpr Entry entries[] = {
#define HALYARD_VARIANT(kernel, dtype, isa) {#kernel, #dtype, #isa, #isa, first_call<index_##kernel##_##dtype##_##isa>},
#define HALYARD_SHARED(kernel, dtype, isa, other) {#kernel, #dtype, #isa, #other, nullptr},
#define HALYARD_ABSENT(kernel, dtype, isa) {#kernel, #dtype, #isa, {}, nullptr},
#include "kernels/variants.inc"
#undef HALYARD_ABSENT
#undef HALYARD_SHARED
#undef HALYARD_VARIANT
};

std::mutex mutex;
std::function<KernelFunction(int)> resolve;
std::set<int> *recorded = nullptr;  // while calls are recorded
std::atomic<KernelFunction> functions[table_size];

const bool is_filled = [] {
    for (int index = 0; index < table_size; index++) {
        functions[index] = entries[index].first_call;
    }
    return true;
}();

int answer_first_call(int index, void **arguments) {
    KernelFunction function = nullptr;
    {
        const std::lock_guard<std::mutex> lock(mutex);
        if (recorded != nullptr) {
            recorded->insert(index);
            return 0;
        }
        functions[index] = function = resolve(index);
    }
    return function(arguments);
}

TileKernels &tiles() {
    static TileKernels table;
    return table;
}

}  // namespace

int table_index_of(const Variant &variant) {
    static const std::map<std::string, int> indices = [] {
        std::map<std::string, int> all;
        for (int index = 0; index < table_size; index++) {
            if (entries[index].first_call != nullptr) {
                all[variant_at(index).name()] = index;
            }
        }
        return all;
    }();
    const auto found = indices.find(variant.name());
    return found == indices.end() ? -1 : found->second;
}

Variant variant_at(int index) {
    return {find_kernel(entries[index].kernel), entries[index].dtype, entries[index].isa};
}

std::set<std::string> isas_with_kernels_of(const std::string &isa) {
    std::set<std::string> isas;
    for (const Entry &each : entries) {
        if (each.isa == isa && !each.of.empty()) {
            isas.emplace(each.of);
        }
    }
    return isas;
}

std::vector<Variant> all_variants() {
    std::vector<Variant> all;
    for (int index = 0; index < table_size; index++) {
        if (entries[index].first_call != nullptr) {
            all.push_back(variant_at(index));
        }
    }
    return all;
}

void set_resolver(std::function<KernelFunction(int index)> resolver) {
    resolve = std::move(resolver);
}

void set_kernel(int index, KernelFunction function) {
    functions[index] = function != nullptr ? function : entries[index].first_call;
}

void set_tile_panels(const Variant &variant, int panels) {
    // The entries of a kernel are those of its types on one instruction set after another.
    const auto dtypes = static_cast<int>(dtype_names().size()), isas = static_cast<int>(isa_names().size());
    const int kernel = table_index_of(variant) / (isas * dtypes), dtype = table_index_of(variant) % dtypes;
    for (int isa = 0; isa < isas; isa++) {
        if (entries[(kernel * isas + isa) * dtypes + dtype].of == variant.isa) {
            tiles().set(static_cast<Kernel>(kernel), static_cast<DType>(dtype), isa, panels);
        }
    }
}

std::vector<int> variants_called_by(const std::function<void()> &call) {
    KernelFunction before[table_size];
    std::set<int> called;
    for (int index = 0; index < table_size; index++) {
        before[index] = functions[index];
        set_kernel(index, nullptr);
    }
    recorded = &called;
    call();
    recorded = nullptr;
    for (int index = 0; index < table_size; index++) {
        functions[index] = before[index];
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
