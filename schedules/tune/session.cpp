// See session.h.
#include "session.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

#include "halyard/halyard.h"
#include "mutable_dispatch_table.h"

namespace halyard::tune {
namespace {

std::string processor_field(const std::string &name) {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        const std::size_t colon = line.find(':');
        if (colon != std::string::npos && line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1) == name) {
            const std::size_t value = line.find_first_not_of(" \t", colon + 1);
            return value == std::string::npos ? "" : line.substr(value);
        }
    }
    return {};
}

Setting describe_setting(const bench::Machine &machine) {
    return {{{"name", machine_name(machine)},
             {"cpu", machine.cpu},
             {"processors", machine.processors},
             {"l1", machine.l1},
             {"l2", machine.l2},
             {"l3", machine.l3}},
            {{"halyard", halyard_version()}, {"halide", halide_version()}}};
}

bool contains(const std::vector<std::string> &words, const std::string &word) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

/** The words of a list, or all there are; `option` is named if a word is none of them. */
std::vector<std::string> chosen(const char *option, const std::string &list, const std::vector<std::string> &all) {
    for (const std::string &word : words_of(list)) {
        if (list != "all" && !contains(all, word)) {
            throw std::invalid_argument(std::string(option) + ": there is no '" + word + "' here; there are " +
                                        join(all) + ", and all");
        }
    }
    return list == "all" ? all : words_of(list);
}

std::vector<std::string> supported_isas() {
    std::vector<std::string> supported;
    for (const std::string &isa : isa_names()) {
        if (halyard_isa_supported(isa_named(isa)) != 0) {
            supported.push_back(isa);
        }
    }
    return supported;
}

bool is_of_runtime(const std::string &word) {
    return word == "runtime" || word.rfind("runtime.", 0) == 0;
}

}  // namespace

TuningSession::TuningSession(const Options &asked)
    : options(asked), effort(effort_named(asked.exhaustive ? "exhaustive" : asked.effort)),
      machine(bench::describe_machine()), setting(describe_setting(machine)),
      defaults(asked.tuned_directory + "/x86-64.json"),
      output(!asked.output.empty() ? asked.output : asked.tuned_directory + "/" + machine_name(machine) + ".json"),
      database(asked.database), finder(asked.threads, machine.cold_set()), random(asked.seed) {
    set_resolver([this](int index) {
        std::unique_ptr<Loaded> &kernel = loaded[index];
        if (kernel == nullptr) {
            const Variant variant = variant_at(index);
            kernel = compiler.load(default_object(variant), variant.symbol());
        }
        return kernel->function();
    });
    for (const KernelInfo &kernel : kernel_table()) {
        for (const std::string &isa : isa_names()) {
            for (const std::string &dtype : dtype_names()) {
                const Variant variant{&kernel, dtype, isa};
                if (kernel.family == "matmul" && table_index_of(variant) >= 0) {
                    set_tile_panels(variant, defaults.complete(variant).at("panels"));
                }
            }
        }
    }
    for (const SearchSpace &space : runtime_spaces()) {
        set_runtime(runtime_defaults(space));
    }
}

std::vector<Subject> TuningSession::subjects(std::vector<std::string> &left_out) {
    const std::vector<Shape> shapes = shapes_named(options.shapes, effort.large_sets);
    std::vector<Subject> subjects;
    for (const SearchSpace &space : chosen_groups(options.kernels)) {
        const std::int64_t last_level = static_cast<std::int64_t>(
            std::min(machine.last_level(), static_cast<std::size_t>(machine.processors) << 24));
        subjects.push_back({std::nullopt, supported_isas().back(), space, schedules::TargetInfo(),
                            runtime_defaults(space), runtime_cases(space.family, machine.processors, last_level),
                            runtime_checks(space.family)});
    }
    for (const Variant &variant : chosen_variants(options)) {
        Subject subject{
            variant,
            variant.isa,
            *variant.space(),
            variant.target_info(static_cast<std::int64_t>(machine.l1), static_cast<std::int64_t>(machine.l2)),
            defaults.complete(variant),
            {},
            {}};
        if (worthy_choices(subject.space, subject.target, subject.defaults).empty()) {
            left_out.push_back(variant.name() + ": there is nothing to choose");
            continue;
        }
        subject.cases = finder.tuning_cases(variant, shapes);
        subject.checks = finder.checks(variant);
        if (subject.cases.empty()) {
            left_out.push_back(variant.name() + ": no call of the library reaches it on these shapes");
            continue;
        }
        subjects.push_back(std::move(subject));
    }
    std::shuffle(subjects.begin(), subjects.end(), random);
    return subjects;
}

SubjectKey TuningSession::key_of(const Subject &subject) {
    SubjectKey key;
    key.kernel = subject.variant ? subject.variant->kernel->name : subject.name();
    key.dtype = subject.variant ? subject.variant->dtype : "all";
    key.isa = subject.isa;
    key.family = subject.family();
    key.threads = subject.variant ? options.threads : machine.processors;
    for (const TuningCase &tuning_case : subject.cases) {
        key.cases.push_back(tuning_case.name());
    }
    key.space = hash_of_space(subject.space);
    if (subject.variant) {
        key.code = hash_of(default_object(*subject.variant));
    } else {
        static const std::string program = [] {
            std::ifstream file("/proc/self/exe", std::ios::binary);
            return hash_of({std::istreambuf_iterator<char>(file), {}});
        }();
        key.code = program;
    }
    return key;
}

const std::string &TuningSession::default_object(const Variant &variant) {
    std::string &object = objects[variant.symbol()];
    if (object.empty()) {
        object = compiler.object(variant, defaults.named(variant));
    }
    return object;
}

void TuningSession::install(const Subject &subject, const Choice &choice, KernelFunction function) {
    if (!subject.variant) {
        set_runtime(choice);
        return;
    }
    set_kernel(table_index_of(*subject.variant), function);
    if (subject.variant->kernel->family == "matmul") {
        set_tile_panels(*subject.variant, choice.at("panels"));
    }
}

std::vector<const KernelInfo *> chosen_kernels(const std::string &list) {
    std::vector<std::string> families, names;
    for (const KernelInfo &kernel : kernel_table()) {
        names.push_back(kernel.name);
        if (!contains(families, kernel.family)) {
            families.push_back(kernel.family);
        }
    }
    const std::vector<std::string> words = words_of(list);
    for (const std::string &word : words) {
        if (!is_of_runtime(word) && !contains(names, word) && !contains(families, word)) {
            throw std::invalid_argument("--kernel: there is no kernel or family '" + word +
                                        "'. Families: " + join(families) + ", runtime. Kernels: " + join(names) + ".");
        }
    }
    std::vector<const KernelInfo *> kernels;
    for (const KernelInfo &kernel : kernel_table()) {
        const bool of_family = contains(words, kernel.family) && find_kernel(kernel.family) == nullptr;
        if (words.empty() || of_family || contains(words, kernel.name)) {
            kernels.push_back(&kernel);
        }
    }
    return kernels;
}

std::vector<SearchSpace> chosen_groups(const std::string &list) {
    std::vector<SearchSpace> groups;
    std::vector<std::string> names = {"runtime"};
    const std::vector<std::string> words = words_of(list);
    for (const SearchSpace &space : runtime_spaces()) {
        names.push_back("runtime." + space.family);
        if (words.empty() || contains(words, "runtime") || contains(words, names.back())) {
            groups.push_back(space);
        }
    }
    for (const std::string &word : words) {
        if (is_of_runtime(word) && !contains(names, word)) {
            throw std::invalid_argument("--kernel: there is no '" + word + "'; there are " + join(names));
        }
    }
    return groups;
}

std::vector<Variant> chosen_variants(const Options &options) {
    const std::vector<std::string> supported = supported_isas();
    std::vector<Variant> variants;
    for (const std::string &isa : chosen("--isa", options.isas.empty() ? supported.back() : options.isas, supported)) {
        for (const std::string &dtype : chosen("--dtype", options.dtypes, dtype_names())) {
            for (const KernelInfo *kernel : chosen_kernels(options.kernels)) {
                const Variant variant{kernel, dtype, isa};
                if (variant.space() != nullptr && table_index_of(variant) >= 0) {
                    variants.push_back(variant);
                }
            }
        }
    }
    return variants;
}

Choice choice_named(const std::string &text, const Choice &defaults, const SearchSpace &space) {
    Choice choice = defaults;
    for (const std::string &word : words_of(text == "default" ? "" : text)) {
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
            throw std::invalid_argument("'" + word + "': the parameters are " + join(names));
        }
        if (!contains(values, value)) {
            throw std::invalid_argument("'" + word + "': the legal values are " + join(values));
        }
        choice[name] = std::stoi(value);
    }
    return choice;
}

std::string machine_name(const bench::Machine &machine) {
    const auto kibibytes = [](std::size_t bytes) { return std::to_string(bytes / 1024) + "k"; };
    std::string name = "x86-64-" + processor_field("vendor_id") + "-" + processor_field("cpu family") + "-" +
                       processor_field("model") + "-" + kibibytes(machine.l1) + "-" + kibibytes(machine.l2);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return name;
}

std::vector<std::string> words_of(const std::string &list) {
    std::vector<std::string> words;
    std::istringstream in(list);
    for (std::string word; std::getline(in, word, ',');) {
        words.push_back(word);
    }
    return words;
}

std::string join(const std::vector<std::string> &words) {
    std::string text;
    for (const std::string &word : words) {
        text += (text.empty() ? "" : ", ") + word;
    }
    return text;
}

std::string number(const char *format, double value) {
    char text[32];
    std::snprintf(text, sizeof(text), format, value);
    return text;
}

}  // namespace halyard::tune
