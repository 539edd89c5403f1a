// See session.h.
#include "session.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>

#include "halyard/halyard.h"
#include "mutable_dispatch_table.h"

namespace halyard::tune {
namespace {

/** "x86-64-genuineintel-6-85-32k-1024k": maker, family and model of the processor and the first two levels of its data
 *  caches, as cmake/HalyardTuned.cmake finds them too. */
std::string name_of(const bench::Machine &machine) {
    std::map<std::string, std::string> fields;
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        const std::size_t colon = line.find(": ");
        if (colon != std::string::npos) {
            fields.insert({line.substr(0, line.find('\t')), line.substr(colon + 2)});
        }
    }
    std::string name = "x86-64-" + fields["vendor_id"] + "-" + fields["cpu family"] + "-" + fields["model"] + "-" +
                       std::to_string(machine.l1 / 1024) + "k-" + std::to_string(machine.l2 / 1024) + "k";
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

bool names(const std::vector<std::string> &words, const std::string &word) {
    return std::any_of(words.begin(), words.end(),
                       [&](const std::string &each) { return each == word || each == "all"; });
}

std::string hash_of_program() {
    static const std::string hash = [] {
        std::ifstream file("/proc/self/exe", std::ios::binary);
        return hash_of({std::istreambuf_iterator<char>(file), {}});
    }();
    return hash;
}

}  // namespace

void install(const Subject &subject, const Choice &choice, const KernelForms &forms) {
    if (!subject.variant) {
        set_runtime(choice);
        return;
    }
    set_kernel(subject.variant->index, forms);
    if (subject.variant->kernel->is_matmul()) {
        set_tile_panels(*subject.variant, choice.at("panels"));
    }
}

Session::Session(const Options &asked)
    : options(asked), effort(effort_named(asked.exhaustive ? "exhaustive" : asked.effort)),
      machine(bench::describe_machine()), setting(describe_setting(machine)),
      machine_name(setting.at("machine").at("name")),
      output(!asked.output.empty() ? asked.output : HALYARD_TUNE_TUNED_DIR "/" + machine_name + ".json"),
      records(asked.database) {
    set_resolver([this](int index) {
        Loaded &kernel = loaded[index];
        if (kernel.forms.ordinary == nullptr) {
            const Variant &variant = *std::find_if(all_variants().begin(), all_variants().end(),
                                                   [index](const Variant &each) { return each.index == index; });
            kernel = compiler.load(default_object(variant), variant.symbol());
        }
        return kernel.forms;
    });
    for (const Variant &variant : all_variants()) {
        if (variant.kernel->is_matmul()) {
            set_tile_panels(variant, variant.defaults().at("panels"));
        }
    }
    for (const SearchSpace &space : runtime_spaces()) {
        set_runtime(defaults_of(space));
    }
}

std::vector<Subject> Session::subjects() {
    const std::vector<Shape> shapes = shapes_named(options.shapes, effort.large_sets);
    std::vector<Subject> subjects;
    for (const SearchSpace &space : chosen_groups(options)) {
        const auto last_level = std::min(machine.last_level(), static_cast<std::size_t>(machine.processors) << 24);
        subjects.push_back({std::nullopt, halyard_isa_name(halyard_context_isa(nullptr)), space,
                            schedules::TargetInfo(), defaults_of(space),
                            runtime_cases(space.family, machine.processors, static_cast<std::int64_t>(last_level)),
                            runtime_checks(space.family)});
    }
    for (const Variant &variant : chosen_variants(options)) {
        Subject subject{
            variant, variant.isa, *variant.space(),
            variant.target_info(static_cast<std::int64_t>(machine.l1), static_cast<std::int64_t>(machine.l2)),
            variant.defaults()};
        if (subject.choices().empty()) {
            left_out.push_back(variant.name() + ": there is nothing to choose");
            continue;
        }
        subject.cases = tuning_cases(variant, shapes, options.threads);
        subject.checks = checks_of(variant);
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
    for (const CaseId &id : subject.cases) {
        cases.push_back(id.name());
    }
    const bool of_kernel = subject.variant.has_value();
    facts.update({{"kernel", of_kernel ? subject.variant->kernel->name : subject.name()},
                  {"family", of_kernel ? subject.space.family : "runtime"},
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
    for (const Variant &variant : all_variants()) {
        if (variant.name() == subject_of(record) && variant.space() != nullptr) {
            return {{"space", hash_of_space(*variant.space())}, {"code", hash_of(default_object(variant))}};
        }
    }
    return json::object();
}

const std::string &Session::default_object(const Variant &variant) {
    std::string &made = objects[variant.index];
    if (made.empty()) {
        made = compiler.object(variant, variant.defaults());
    }
    return made;
}

bool is_chosen(const Options &options, const KernelInfo &kernel) {
    // A name that is both a family's and a kernel's is the kernel's.
    return names(options.kernels, kernel.name) ||
           (names(options.kernels, kernel.family) && find_kernel(kernel.family) == nullptr);
}

std::vector<SearchSpace> chosen_groups(const Options &options) {
    std::vector<SearchSpace> groups;
    for (const SearchSpace &space : runtime_spaces()) {
        if (names(options.kernels, "runtime") || names(options.kernels, "runtime." + space.family)) {
            groups.push_back(space);
        }
    }
    return groups;
}

std::vector<Variant> chosen_variants(const Options &options) {
    const std::vector<std::string> supported = supported_isas();
    std::vector<Variant> variants;
    for (const Variant &variant : all_variants()) {
        if (std::count(supported.begin(), supported.end(), variant.isa) > 0 && variant.space() != nullptr &&
            is_chosen(options, *variant.kernel) && names(options.isas, variant.isa) &&
            names(options.dtypes, variant.dtype)) {
            variants.push_back(variant);
        }
    }
    return variants;
}

std::vector<std::string> supported_isas() {
    std::vector<std::string> supported;
    for (int i = 0; i < halyard_isa_count(); i++) {
        if (halyard_isa_supported(halyard_isa_at(i)) != 0) {
            supported.push_back(halyard_isa_name(halyard_isa_at(i)));
        }
    }
    return supported;
}

std::vector<std::string> usual_isas() {
    std::set<std::string> isas;
    for (const Variant &variant : all_variants()) {
        if (has_kernel(halyard_context_isa(nullptr), variant)) {
            isas.insert(variant.isa);
        }
    }
    return {isas.begin(), isas.end()};
}

}  // namespace halyard::tune
