// See command.h.
#include "command.h"

#include <algorithm>
#include <stdexcept>

#include "setting.h"
#include "slots.h"
#include "text.h"

namespace halyard::tune {
namespace {

std::vector<std::string> chosen_isas(const std::string &list) {
    std::vector<std::string> supported;
    for (const std::string &isa : isa_names()) {
        if (halyard_isa_supported(isa_named(isa)) != 0) {
            supported.push_back(isa);
        }
    }
    if (list.empty()) {
        return {supported.back()};
    }
    if (list == "all") {
        return supported;
    }
    for (const std::string &isa : words_of(list)) {
        if (std::find(supported.begin(), supported.end(), isa) == supported.end()) {
            throw std::invalid_argument("--isa: this machine has no '" + isa + "'; it has " + join(supported) +
                                        ", and all");
        }
    }
    return words_of(list);
}

std::vector<std::string> chosen_dtypes(const std::string &list) {
    if (list == "all") {
        return dtype_names();
    }
    for (const std::string &dtype : words_of(list)) {
        if (std::find(dtype_names().begin(), dtype_names().end(), dtype) == dtype_names().end()) {
            throw std::invalid_argument("--dtype: there is no '" + dtype + "'; there are " + join(dtype_names()) +
                                        ", and all");
        }
    }
    return words_of(list);
}

}  // namespace

std::vector<const KernelInfo *> chosen_kernels(const std::string &list) {
    std::vector<std::string> families, names;
    for (const KernelInfo &kernel : kernel_table()) {
        names.push_back(kernel.name);
        if (std::find(families.begin(), families.end(), kernel.family) == families.end()) {
            families.push_back(kernel.family);
        }
    }
    const std::vector<std::string> words = words_of(list);
    for (const std::string &word : words) {
        if (std::find(names.begin(), names.end(), word) == names.end() &&
            std::find(families.begin(), families.end(), word) == families.end()) {
            throw std::invalid_argument("--kernel: there is no kernel or family '" + word +
                                        "'. Families: " + join(families) + ". Kernels: " + join(names) + ".");
        }
    }
    std::vector<const KernelInfo *> kernels;
    for (const KernelInfo &kernel : kernel_table()) {
        const auto is_meant = [&](const std::string &word) {
            return word == kernel.name || (word == kernel.family && find_kernel(word) == nullptr);
        };
        if (words.empty() || std::any_of(words.begin(), words.end(), is_meant)) {
            kernels.push_back(&kernel);
        }
    }
    return kernels;
}

std::vector<Variant> chosen_variants(const Options &options) {
    std::vector<Variant> variants;
    for (const std::string &isa : chosen_isas(options.isas)) {
        for (const std::string &dtype : chosen_dtypes(options.dtypes)) {
            for (const KernelInfo *kernel : chosen_kernels(options.kernels)) {
                const Variant variant{kernel, dtype, isa};
                if (variant.space() != nullptr && slot_of(variant) >= 0) {
                    variants.push_back(variant);
                }
            }
        }
    }
    return variants;
}

TuneOptions tune_options(const Options &options, const bench::Machine &machine) {
    TuneOptions tuning;
    tuning.shapes = options.shapes;
    tuning.rigor = rigor_named(options.rigor);
    tuning.threads = options.threads;
    tuning.seed = options.seed;
    tuning.cold_set = machine.cold_set();
    tuning.l1 = static_cast<std::int64_t>(machine.l1);
    tuning.l2 = static_cast<std::int64_t>(machine.l2);
    return tuning;
}

Choice choice_named(const std::string &text, const Variant &variant, const UsualParameters &usual,
                    const std::optional<Verdict> &known) {
    Choice choice = usual.complete(variant);
    if (text == "default") {
        return choice;
    }
    if (text == "best") {
        if (!known) {
            throw std::invalid_argument("the database has no verdict on " + variant.name());
        }
        return known->best;
    }
    const SearchSpace &space = *variant.space();
    for (const std::string &word : words_of(text)) {
        const std::size_t equals = word.find('=');
        const std::string name = word.substr(0, equals),
                          value = equals == std::string::npos ? "" : word.substr(equals + 1);
        std::vector<std::string> names, values;
        for (const schedules::Tunable &parameter : space.parameters) {
            names.push_back(parameter.name);
            if (parameter.name == name) {
                for (const int legal : parameter.values) {
                    values.push_back(std::to_string(legal));
                }
            }
        }
        if (values.empty()) {
            throw std::invalid_argument("'" + word + "': " + variant.kernel->name + " has the parameters " +
                                        join(names));
        }
        if (std::find(values.begin(), values.end(), value) == values.end()) {
            throw std::invalid_argument("'" + word + "': the legal values are " + join(values));
        }
        choice[name] = std::stoi(value);
    }
    return choice;
}

UsualParameters usual_parameters(const Options &options) {
    return UsualParameters(options.tuned_directory + "/x86-64.json");
}

std::string output_file(const Options &options, const bench::Machine &machine) {
    return !options.output.empty() ? options.output : options.tuned_directory + "/" + machine_name(machine) + ".json";
}

}  // namespace halyard::tune
