// See session.h.
#include "session.h"

#include <algorithm>
#include <fstream>
#include <iterator>
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

/** "x86-64-genuineintel-6-85-32k-1024k": maker, family and model of the processor and the first two levels of its data
 *  caches, as cmake/HalyardTuned.cmake finds them too. */
std::string name_of(const bench::Machine &machine) {
    const auto kibibytes = [](std::size_t bytes) { return std::to_string(bytes / 1024) + "k"; };
    std::string name = "x86-64-" + processor_field("vendor_id") + "-" + processor_field("cpu family") + "-" +
                       processor_field("model") + "-" + kibibytes(machine.l1) + "-" + kibibytes(machine.l2);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return name;
}

json describe_setting(const bench::Machine &machine) {
    return setting_of({{"name", name_of(machine)},
                       {"cpu", machine.cpu},
                       {"processors", machine.processors},
                       {"l1", machine.l1},
                       {"l2", machine.l2},
                       {"l3", machine.l3}},
                      {{"halyard", halyard_version()}, {"halide", halide_version()}});
}

bool contains(const std::vector<std::string> &words, const std::string &word) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

std::string best_isa() {
    return halyard_isa_name(halyard_context_isa(nullptr));
}

std::string hash_of_program() {
    static const std::string hash = [] {
        std::ifstream file("/proc/self/exe", std::ios::binary);
        return hash_of({std::istreambuf_iterator<char>(file), {}});
    }();
    return hash;
}

}  // namespace

Session::Session(const Options &asked)
    : options(asked), effort(effort_named(asked.exhaustive ? "exhaustive" : asked.effort)),
      machine(bench::describe_machine()), setting(describe_setting(machine)),
      defaults(asked.tuned_directory + "/x86-64.json"),
      output(!asked.output.empty() ? asked.output : asked.tuned_directory + "/" + machine_name() + ".json"),
      records(asked.database), finder(asked.threads, machine.cold_set()), random(asked.seed) {
    set_resolver([this](int index) {
        std::unique_ptr<Loaded> &kernel = loaded[index];
        if (kernel == nullptr) {
            const Variant variant = variant_at(index);
            kernel = compiler.load(default_object(variant), variant.symbol());
        }
        return kernel->function();
    });
    for (const Variant &variant : all_variants()) {
        if (variant.kernel->family.rfind("matmul", 0) == 0) {
            set_tile_panels(variant, defaults.complete(variant).at("panels"));
        }
    }
    for (const SearchSpace &space : runtime_spaces()) {
        set_runtime(defaults_of(space));
    }
}

std::vector<Subject> Session::subjects(std::vector<std::string> &left_out) {
    const std::vector<Shape> shapes = shapes_named(options.shapes, effort.large_sets);
    std::vector<Subject> subjects;
    for (const SearchSpace &space : chosen_groups(options)) {
        const std::int64_t last_level = static_cast<std::int64_t>(
            std::min(machine.last_level(), static_cast<std::size_t>(machine.processors) << 24));
        subjects.push_back({std::nullopt, best_isa(), space, schedules::TargetInfo(), defaults_of(space),
                            runtime_cases(space.family, machine.processors, last_level), runtime_checks(space.family)});
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

json Session::facts_of(const Subject &subject) {
    json facts = setting;
    std::vector<std::string> cases;
    for (const TuningCase &tuning_case : subject.cases) {
        cases.push_back(tuning_case.name());
    }
    const bool of_kernel = subject.variant.has_value();
    facts.update({{"kernel", of_kernel ? subject.variant->kernel->name : subject.name()},
                  {"family", of_kernel ? subject.variant->kernel->family : "runtime"},
                  {"dtype", of_kernel ? subject.variant->dtype : "all"},
                  {"isa", subject.isa},
                  {"threads", of_kernel ? options.threads : machine.processors},
                  {"cases", cases}});
    facts.update(facts_now(facts));
    return facts;
}

json Session::facts_now(const json &record) {
    for (const SearchSpace &space : runtime_spaces()) {
        if ("runtime." + space.family == record.at("kernel")) {
            return {{"space", hash_of_space(space)}, {"code", hash_of_program()}};
        }
    }
    const Variant variant{find_kernel(record.at("kernel")), record.at("dtype"), record.at("isa")};
    if (variant.kernel == nullptr || variant.space() == nullptr || table_index_of(variant) < 0) {
        return json::object();
    }
    return {{"space", hash_of_space(*variant.space())}, {"code", hash_of(default_object(variant))}};
}

std::string Session::object(const Variant &variant, const Choice &choice) {
    const Compiled compiled = compiler.objects(variant, {choice}).front();
    return compiled.failure.empty() ? compiled.object : throw std::runtime_error(compiled.failure);
}

const std::string &Session::default_object(const Variant &variant) {
    std::string &made = objects[variant.symbol()];
    if (made.empty()) {
        made = object(variant, defaults.named(variant));
    }
    return made;
}

void Session::install(const Subject &subject, const Choice &choice, KernelFunction function) {
    if (!subject.variant) {
        set_runtime(choice);
        return;
    }
    set_kernel(table_index_of(*subject.variant), function);
    if (subject.variant->kernel->family.rfind("matmul", 0) == 0) {
        set_tile_panels(*subject.variant, choice.at("panels"));
    }
}

bool is_chosen(const Options &options, const KernelInfo &kernel) {
    // A name that is both a family's and a kernel's is the kernel's.
    const bool of_family = contains(options.kernels, kernel.family) && find_kernel(kernel.family) == nullptr;
    return options.kernels.empty() || of_family || contains(options.kernels, kernel.name);
}

std::vector<SearchSpace> chosen_groups(const Options &options) {
    std::vector<SearchSpace> groups;
    for (const SearchSpace &space : runtime_spaces()) {
        if (options.kernels.empty() || contains(options.kernels, "runtime") ||
            contains(options.kernels, "runtime." + space.family)) {
            groups.push_back(space);
        }
    }
    return groups;
}

std::vector<Variant> chosen_variants(const Options &options) {
    const std::vector<std::string> supported = supported_isas();
    const std::set<std::string> best = isas_with_kernels_of(best_isa());
    const auto names = [](const std::vector<std::string> &words, const std::string &word) {
        return contains(words, word) || contains(words, "all");
    };
    std::vector<Variant> variants;
    for (const Variant &variant : all_variants()) {
        if (contains(supported, variant.isa) && variant.space() != nullptr && is_chosen(options, *variant.kernel) &&
            (options.isas.empty() ? best.count(variant.isa) > 0 : names(options.isas, variant.isa)) &&
            (options.dtypes.empty() || names(options.dtypes, variant.dtype))) {
            variants.push_back(variant);
        }
    }
    return variants;
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

}  // namespace halyard::tune
