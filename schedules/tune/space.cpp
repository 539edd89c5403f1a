// See space.h.
#include "space.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "runtime/core/parameters.h"

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

/** Of what is not streamed, tile and prefetch distance do not matter; and streaming is what x86 does by itself. */
bool is_worth_trying(const Choice &choice, const schedules::TargetInfo &) {
    static const Parameters defaults;
    const auto value = [&choice](const char *name) {
        const auto found = choice.find(name);
        return found == choice.end() ? -1 : found->second;
    };
    return value("row_streams") != 1 && value("elementwise_streams") != 1 &&
           (value("elementwise_streams") != 0 ||
            (value("elementwise_tile_f32") == defaults.elementwise_tile_f32 &&
             value("elementwise_tile_16_bit") == defaults.elementwise_tile_16_bit &&
             value("elementwise_prefetch_tiles") == defaults.elementwise_prefetch_tiles));
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
    static const std::vector<SearchSpace> spaces = [] {
        std::vector<SearchSpace> all;
#define HALYARD_TUNABLE(family, parameter, by_default, ...)                                                            \
    add(all, family, parameter, by_default, {__VA_ARGS__}, schedules::WorthCompiling::of(family));
#include "tunables.inc"
#undef HALYARD_TUNABLE
        return all;
    }();
    const auto found = std::find_if(spaces.begin(), spaces.end(),
                                    [this](const SearchSpace &space) { return space.family == kernel->family; });
    return found == spaces.end() ? nullptr : &*found;
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
    std::vector<std::string> keys = {name + "_" + variant.dtype, name};  // the most particular first
    if (find_kernel(family) == nullptr) {                                // a name that is both is the kernel's
        keys.insert(keys.end(), {family + "_" + variant.dtype, family});
    }
    Choice choice;
    const auto of_isa = entries.find(variant.isa);
    for (const std::string &key : keys) {
        if (of_isa != entries.end() && of_isa->second.count(key) != 0) {
            choice.insert(of_isa->second.at(key).begin(), of_isa->second.at(key).end());
        }
    }
    return choice;
}

Choice DefaultParameters::complete(const Variant &variant) const {
    Choice choice = named(variant);
    if (const SearchSpace *space = variant.space()) {
        choice.merge(defaults_of(*space));
    }
    return choice;
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

Choice choice_named(const std::string &text, const Choice &defaults, const SearchSpace &space) {
    Choice choice = defaults;
    std::istringstream words(text == "default" ? "" : text);
    for (std::string word; std::getline(words, word, ',');) {
        std::string names, values;
        bool is_legal = false;
        for (const schedules::Tunable &parameter : space.parameters) {
            names += (names.empty() ? "" : ", ") + parameter.name;
            if (word.rfind(parameter.name + "=", 0) != 0) {
                continue;
            }
            for (const int value : parameter.values) {
                values += (values.empty() ? "" : ", ") + std::to_string(value);
                if (word == parameter.name + "=" + std::to_string(value)) {
                    choice[parameter.name] = value;
                    is_legal = true;
                }
            }
        }
        if (!is_legal) {
            throw std::invalid_argument("'" + word + "': the " +
                                        (values.empty() ? "parameters are " + names : "legal values are " + values));
        }
    }
    return choice;
}

}  // namespace halyard::tune
