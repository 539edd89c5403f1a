// See kernels.h.
#include "kernels.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

namespace halyard::tune {
namespace {

KernelInfo kernel_info(const char *name, const char *family, const char *generator, const char *parameters) {
    KernelInfo info{name, family, generator, {}};
    std::istringstream words(parameters);
    for (std::string word; words >> word;) {
        const std::size_t equals = word.find('=');
        info.parameters[word.substr(0, equals)] = word.substr(equals + 1);
    }
    return info;
}

int lanes_of(const std::string &isa) {
    return isa == "sse41" ? 4 : isa == "avx2" ? 8 : 16;
}

}  // namespace

const std::vector<KernelInfo> &kernel_table() {
    static const std::vector<KernelInfo> kernels = {
#define HALYARD_GENERATED(name, family, generator, parameters) kernel_info(#name, #family, #generator, parameters),
#include "kernels/generated.inc"
#undef HALYARD_GENERATED
    };
    return kernels;
}

const KernelInfo *find_kernel(const std::string &name) {
    for (const KernelInfo &kernel : kernel_table()) {
        if (kernel.name == name) {
            return &kernel;
        }
    }
    return nullptr;
}

const std::vector<std::string> &isa_names() {
    static const std::vector<std::string> names = {
#define HALYARD_ISA(name) #name,
#include "kernels/isas.inc"
#undef HALYARD_ISA
    };
    return names;
}

const std::vector<std::string> &dtype_names() {
    static const std::vector<std::string> names = {
#define HALYARD_DTYPE(name) #name,
#include "kernels/dtypes.inc"
#undef HALYARD_DTYPE
    };
    return names;
}

std::string Variant::halide_target() const {
    static const std::map<std::string, std::string> targets = {
#define HALYARD_TARGET(isa, target) {#isa, target},
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

std::map<std::string, std::string> Variant::parameters() const {
    std::map<std::string, std::string> all = kernel->parameters;
    all["dtype"] = dtype;
    return all;
}

const SearchSpace *Variant::space() const {
    static const std::map<std::string, SearchSpace> spaces = [] {
        std::map<std::string, SearchSpace> all;
        const auto add = [&](const std::string &family, const std::string &name, int by_default,
                             std::vector<int> values) {
            SearchSpace &space = all[family];
            space.family = family;
            space.parameters.push_back({name, by_default, std::move(values)});
            space.fits = schedules::WorthCompiling::of(family);
        };
#define HALYARD_TUNABLE(family, parameter, by_default, ...) add(family, parameter, by_default, {__VA_ARGS__});
#include "tunables.inc"
#undef HALYARD_TUNABLE
        return all;
    }();
    const auto found = spaces.find(kernel->family);
    return found == spaces.end() ? nullptr : &found->second;
}

schedules::TargetInfo Variant::target_info(std::int64_t l1, std::int64_t l2) const {
    return {lanes_of(isa), lanes_of(isa) == 16 ? 32 : 16, l1, l2, parameters(), kernel->generator};
}

DefaultParameters::DefaultParameters(const std::string &file) {
    std::ifstream in(file);
    if (!in) {
        throw std::runtime_error("cannot read '" + file + "'");
    }
    const nlohmann::json json = nlohmann::json::parse(in);
    for (const auto &[isa, keys] : json.at("schedules").items()) {
        for (const auto &[key, values] : keys.items()) {
            entries[isa][key] = values.get<Choice>();
        }
    }
}

Choice DefaultParameters::named(const Variant &variant) const {
    const std::string &family = variant.kernel->family, &name = variant.kernel->name;
    Choice choice;
    const auto of_isa = entries.find(variant.isa);
    if (of_isa == entries.end()) {
        return choice;
    }
    std::vector<std::string> keys = {name, name + "_" + variant.dtype};
    if (find_kernel(family) == nullptr) {  // a name that is both is the kernel's
        keys.insert(keys.begin(), {family, family + "_" + variant.dtype});
    }
    for (const std::string &key : keys) {
        const auto entry = of_isa->second.find(key);
        if (entry != of_isa->second.end()) {
            for (const auto &[parameter, value] : entry->second) {
                choice[parameter] = value;
            }
        }
    }
    return choice;
}

Choice DefaultParameters::complete(const Variant &variant) const {
    Choice choice = named(variant);
    if (const SearchSpace *space = variant.space()) {
        for (const schedules::Tunable &parameter : space->parameters) {
            choice.emplace(parameter.name, parameter.by_default);
        }
    }
    return choice;
}

std::string text_of(const Choice &choice) {
    std::string text;
    for (const auto &[name, value] : choice) {
        text += (text.empty() ? "" : " ") + name + "=" + std::to_string(value);
    }
    return text;
}

}  // namespace halyard::tune
