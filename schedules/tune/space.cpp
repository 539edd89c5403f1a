// See space.h.
#include "space.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <stdexcept>

#include "runtime/core/parameters.h"

namespace halyard::tune {
namespace {

using nlohmann::json;

// The build's lists as tables of constants: statements for each of thousands of lines take the compiler half a minute.
struct GeneratedKernel {
    const char *name, *family, *generator, *program, *parameters;
};
constexpr GeneratedKernel generated_kernels[] = {
#define HALYARD_GENERATED(name, family, generator, program, parameters)                                                \
    {#name, #family, #generator, program, parameters},
#include "kernels/generated.inc"
#undef HALYARD_GENERATED
};

struct TableEntry {
    const char *kernel, *dtype, *isa;  // null where no generator makes it
};
constexpr TableEntry dispatch_table[] = {
#define HALYARD_VARIANT(kernel, dtype, isa) {#kernel, #dtype, #isa},
#define HALYARD_WRITTEN(kernel, dtype, isa) {},
#define HALYARD_SHARED(kernel, dtype, isa, other) {},
#define HALYARD_ABSENT(kernel, dtype, isa) {},
#include "kernels/variants.inc"
#undef HALYARD_ABSENT
#undef HALYARD_SHARED
#undef HALYARD_WRITTEN
#undef HALYARD_VARIANT
};

KernelInfo kernel_info(const GeneratedKernel &kernel) {
    KernelInfo info{kernel.name, kernel.family, kernel.generator, kernel.program, {}};
    std::istringstream words(kernel.parameters);
    for (std::string parameter, value; std::getline(words >> std::ws, parameter, '=') >> value;) {
        info.parameters[parameter] = value;
    }
    return info;
}

/** Streaming is what rows do on x86 by themselves. */
bool is_worth_trying(const Choice &choice, const schedules::TargetInfo &) {
    const auto streams = choice.find("row_streams");
    return streams == choice.end() || streams->second != 1;
}

/** Adds a parameter to the space of its family, which comes last. */
void add(std::vector<SearchSpace> &spaces, const std::string &family, const char *name, int by_default,
         std::vector<int> values, schedules::IsWorthCompiling fits) {
    if (spaces.empty() || spaces.back().family != family) {
        spaces.push_back({family, {}, fits});
    }
    spaces.back().parameters.push_back({name, by_default, std::move(values)});
}

}  // namespace

const std::vector<KernelInfo> &kernel_table() {
    static const std::vector<KernelInfo> kernels = [] {
        std::vector<KernelInfo> all;
        for (const GeneratedKernel &kernel : generated_kernels) {
            all.push_back(kernel_info(kernel));
        }
        return all;
    }();
    return kernels;
}

const KernelInfo *find_kernel(const std::string &name) {
    const auto found = std::find_if(kernel_table().begin(), kernel_table().end(),
                                    [&](const KernelInfo &kernel) { return kernel.name == name; });
    return found == kernel_table().end() ? nullptr : &*found;
}

std::string Variant::halide_target() const {
    static const std::map<std::string, std::string> targets = {
#define HALYARD_TARGET(isa, target, flags) {#isa, target},
#include "kernels/targets.inc"
#undef HALYARD_TARGET
    };
    static const std::map<std::string, std::string> features = {
#define HALYARD_FEATURES(family, more) {#family, more},
#include "kernels/features.inc"
#undef HALYARD_FEATURES
    };
    return targets.at(isa) + features.at(kernel->family);
}

std::vector<std::string> Variant::assembler_flags() const {
    static const std::map<std::string, std::string> all = {
#define HALYARD_TARGET(isa, target, flags) {#isa, flags},
#include "kernels/targets.inc"
#undef HALYARD_TARGET
    };
    std::istringstream words(all.at(isa));
    return {std::istream_iterator<std::string>(words), {}};
}

std::string Variant::streamed_prefetch() const {
    static const std::map<std::string, std::string> all = {
#define HALYARD_STREAMED(kernel, dtype, isa, prefetch) {"hk_" #kernel "_" #dtype "_" #isa, #prefetch},
#include "kernels/streamed.inc"
#undef HALYARD_STREAMED
    };
    const auto found = all.find(symbol());
    return found == all.end() ? "" : found->second;
}

std::map<std::string, std::string> Variant::parameters() const {
    std::map<std::string, std::string> all = kernel->parameters;
    all["dtype"] = dtype;
    return all;
}

const SearchSpace *Variant::space() const {
    static const std::vector<SearchSpace> spaces = [] {
        std::vector<SearchSpace> all;
#define HALYARD_TUNABLE(family, parameter, by_default, ...)                                                            \
    if (const auto fits = schedules::WorthCompiling::of(family)) {                                                     \
        add(all, family, parameter, by_default, {__VA_ARGS__}, fits);                                                  \
    }
#include "tunables.inc"
#undef HALYARD_TUNABLE
        return all;
    }();
    const auto found = std::find_if(spaces.begin(), spaces.end(),
                                    [this](const SearchSpace &space) { return space.family == kernel->family; });
    return found == spaces.end() ? nullptr : &*found;
}

schedules::TargetInfo Variant::target_info(std::int64_t l1, std::int64_t l2) const {
    const int lanes = isa == "sse41" ? 4 : isa == "avx2" ? 8 : 16;
    return {lanes, lanes == 16 ? 32 : 16, l1, l2, parameters(), kernel->generator};
}

Choice Variant::defaults() const {
    static const json tuned = json::parse(std::ifstream(HALYARD_TUNE_TUNED_DIR "/x86-64.json")).at("schedules");
    const std::string &family = kernel->family, &name = kernel->name;
    std::vector<std::string> keys = {name + "_" + dtype, name};  // the most particular first
    if (find_kernel(family) == nullptr) {                        // a name that is both is the kernel's
        keys.insert(keys.end(), {family + "_" + dtype, family});
    }
    Choice choice;
    const json of_isa = tuned.value(isa, json::object());
    for (const std::string &key : keys) {
        choice.merge(of_isa.value(key, Choice()));
    }
    if (space() != nullptr) {
        choice.merge(defaults_of(*space()));
    }
    return choice;
}

const std::vector<Variant> &all_variants() {
    static const std::vector<Variant> variants = [] {
        std::vector<Variant> all;
        int index = 0;
        for (const TableEntry &entry : dispatch_table) {
            if (entry.kernel) {
                all.push_back({index, find_kernel(entry.kernel), entry.dtype, entry.isa});
            }
            index++;
        }
        return all;
    }();
    return variants;
}

const std::vector<SearchSpace> &runtime_spaces() {
    static const std::vector<SearchSpace> spaces = [] {
        std::vector<SearchSpace> all;
#define HALYARD_PARAMETER(group, name, by_default, ...)                                                                \
    add(all, #group, #name, by_default, {__VA_ARGS__}, is_worth_trying);
#include "core/parameters.inc"
#undef HALYARD_PARAMETER
        return all;
    }();
    return spaces;
}

Choice defaults_of(const SearchSpace &space) {
    Choice choice;
    for (const schedules::Tunable &parameter : space.parameters) {
        choice[parameter.name] = parameter.by_default;
    }
    return choice;
}

void set_runtime(const Choice &choice) {
    static const std::map<std::string, std::int64_t Parameters::*> members = {
#define HALYARD_PARAMETER(group, name, by_default, ...) {#name, &Parameters::name},
#include "core/parameters.inc"
#undef HALYARD_PARAMETER
    };
    for (const auto &[name, value] : choice) {
        parameters.*members.at(name) = value;
    }
}

std::string text_of(const Choice &choice) {
    std::string text;
    for (const auto &[name, value] : choice) {
        text += (text.empty() ? "" : " ") + name + "=" + std::to_string(value);
    }
    return text;
}

std::string text_of(const SearchSpace &space) {
    std::string text;
    for (const schedules::Tunable &parameter : space.parameters) {
        text += (text.empty() ? "" : "; ") + parameter.name;
        for (const int value : parameter.values) {
            text += (value == parameter.values[0] ? " " : ", ") + std::to_string(value);
        }
    }
    return text;
}

Choice choice_named(const std::string &text, const Choice &defaults, const SearchSpace &space) {
    Choice choice = defaults;
    std::istringstream words(text == "default" ? "" : text);
    for (std::string word; std::getline(words, word, ',');) {
        bool is_legal = false;
        for (const schedules::Tunable &parameter : space.parameters) {
            for (const int value : parameter.values) {
                if (word == parameter.name + "=" + std::to_string(value)) {
                    choice[parameter.name] = value;
                    is_legal = true;
                }
            }
        }
        if (!is_legal) {
            throw std::invalid_argument("'" + word + "' is no choice; there are: " + text_of(space));
        }
    }
    return choice;
}

}  // namespace halyard::tune
