// The commands that do not search: list, show, export, compare and object.
#include "commands.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>

#include "bench/replace_file.h"
#include "evaluator.h"
#include "mutable_dispatch_table.h"
#include "tuned_file.h"

namespace halyard::tune {
namespace {

using nlohmann::json;

std::string parameters_of(const SearchSpace &space) {
    std::string text;
    for (const schedules::Tunable &parameter : space.parameters) {
        text += (text.empty() ? "" : "; ") + parameter.name;
        for (std::size_t i = 0; i < parameter.values.size(); i++) {
            text += (i == 0 ? " " : ", ") + std::to_string(parameter.values[i]);
        }
    }
    return text;
}

/** Why a decision does not hold for the code of this program, or nothing. Of those that change nothing the code does not
 *  matter. */
std::string why_stale(TuningSession &session, const json &record) {
    Subject subject;
    subject.isa = record.at("isa");
    if (record.at("family") == "runtime") {
        for (const SearchSpace &space : runtime_spaces()) {
            if ("runtime." + space.family == record.at("kernel")) {
                subject.space = space;
            }
        }
    } else {
        const Variant variant{find_kernel(record.at("kernel")), record.at("dtype"), subject.isa};
        if (variant.kernel != nullptr && variant.space() != nullptr && table_index_of(variant) >= 0) {
            subject.variant = variant;
            subject.space = *variant.space();
        }
    }
    if (subject.space.parameters.empty()) {
        return "there is no such kernel any more";
    }
    SubjectKey key;
    key.cases = record.at("cases").get<std::vector<std::string>>();
    key.threads = record.at("threads");
    key.space = hash_of_space(subject.space);
    key.code = record.at("is_better").get<bool>() ? session.key_of(subject).code : record.at("code").get<std::string>();
    return why_stale(record, key);
}

}  // namespace

void print_lines(const std::vector<std::string> &lines) {
    for (const std::string &line : lines) {
        std::cerr << line << '\n';
    }
}

int command_list(const Options &options) {
    const auto print = [](const std::string &kernel, const std::string &family, const std::string &parameters) {
        std::printf("%-26s %-12s %s\n", kernel.c_str(), family.c_str(), parameters.c_str());
    };
    print("kernel", "family", "parameters and their values");
    for (const KernelInfo *kernel : chosen_kernels(options.kernels)) {
        const SearchSpace *space = Variant{kernel, "f32", isa_names().back()}.space();
        print(kernel->name, kernel->family, space == nullptr ? "none" : parameters_of(*space));
    }
    for (const SearchSpace &space : chosen_groups(options.kernels)) {
        print("runtime." + space.family, "runtime", parameters_of(space));
    }
    return 0;
}

std::map<std::string, FamilySummary> summary_of(const std::vector<Decided> &decided) {
    std::map<std::string, FamilySummary> families;
    for (const Decided &each : decided) {
        for (const std::string &name : {each.family, std::string("all")}) {
            const Decision &decision = each.decision;
            const double best = std::max(1.0, decision.gain.ratio);
            FamilySummary &family = families[name];
            family.gains.push_back(decision.is_better ? decision.gain : Gain());
            family.best.push_back({best});
            family.faster += decision.is_better ? 1 : 0;
            family.near += best <= 1.02 ? 1 : 0;
            family.largest = std::max(family.largest, best);
        }
    }
    return families;
}

std::string markdown_of(const std::vector<json> &records, const Setting &setting) {
    std::vector<Decided> decided;
    for (const json &record : records) {
        decided.push_back({record.at("kernel").get<std::string>() + " " + record.at("dtype").get<std::string>() + " " +
                               record.at("isa").get<std::string>(),
                           record.at("family"), decision_of(record)});
    }
    std::ostringstream text;
    text << "Tuned on " << setting.machine.at("cpu").get<std::string>() << ".\n\n"
         << "| family | decided | get other parameters | geometric mean of the gains | if every best one counted | "
            "largest | default within 2 % of the best |\n|---|---|---|---|---|---|---|\n";
    for (const auto &[name, family] : summary_of(decided)) {
        text << "| " << name << " | " << family.gains.size() << " | " << family.faster << " | "
             << number("%.3f", mean_gain(family.gains).ratio) << " | " << number("%.3f", mean_gain(family.best).ratio)
             << " | " << number("%.3f", family.largest) << " | " << family.near << " |\n";
    }
    text << "\n| | default | best found | gain | noise | tried | taken |\n|---|---|---|---|---|---|---|\n";
    for (const auto &[name, family, decision] : decided) {
        if (decision.best != decision.defaults) {
            text << "| " << name << " | " << text_of(decision.defaults) << " | " << text_of(decision.best) << " | "
                 << number("%.3f", decision.gain.ratio) << " | " << number("%.1f %%", 100 * decision.noise) << " | "
                 << decision.tried << " | " << (decision.is_better ? "yes" : "") << " |\n";
        }
    }
    return text.str();
}

int command_show(const Options &options) {
    const TuningSession session(options);
    std::vector<std::string> complaints = session.database.complaints();
    std::cout << markdown_of(current_decisions(session.database, session.setting, complaints), session.setting);
    print_lines(complaints);
    return 0;
}

int export_decisions(TuningSession &session) {
    std::vector<std::string> complaints = session.database.complaints();
    std::vector<json> decisions = current_decisions(session.database, session.setting, complaints);
    const auto is_stale = [&](const json &record) {
        const std::string reason = why_stale(session, record);
        if (!reason.empty()) {
            complaints.push_back("The decision on " + record.at("kernel").get<std::string>() + " " +
                                 record.at("dtype").get<std::string>() + " " + record.at("isa").get<std::string>() +
                                 " does not count: " + reason + ".");
        }
        return !reason.empty();
    };
    decisions.erase(std::remove_if(decisions.begin(), decisions.end(), is_stale), decisions.end());
    print_lines(complaints);
    if (decisions.empty()) {
        std::cerr << "halyard-tune: '" << session.options.database << "' holds no decision that counts here\n";
        return exit_failure;
    }
    const json file = tuned_file(decisions, session.setting, read_tuned(session.output, session.setting));
    bench::replace_file(session.output, file.dump(4) + "\n");
    std::cerr << session.output << " has what was found; the next ./run build on such a machine takes it\n";
    return 0;
}

int command_export(const Options &options) {
    TuningSession session(options);
    return export_decisions(session);
}

/** Times choices against the default parameters. */
int command_compare(const Options &options) {
    TuningSession session(options);
    std::vector<std::string> left_out;
    const std::vector<Subject> subjects = session.subjects(left_out);
    if (options.kernels.empty() || subjects.empty()) {
        throw std::invalid_argument("compare wants a --kernel that has parameters");
    }
    for (const Subject &subject : subjects) {
        std::vector<Choice> choices;
        for (const std::string &text : options.choices) {
            choices.push_back(choice_named(text, subject.defaults, subject.space));
        }
        CallEvaluator evaluator(
            session, subject, [] { return interrupted != 0; }, [](const std::string &) {});
        if (evaluator.admitted(choices).size() < choices.size() && interrupted == 0) {
            throw std::runtime_error(subject.name() + ": a choice does not compile or is wrong; the database says why");
        }
        const auto result = evaluator.compare(choices, session.effort.final, true);
        if (interrupted != 0) {
            return exit_interrupted;
        }
        const double noise = noise_of(mean_gain(result.again));
        for (std::size_t i = 0; i < choices.size(); i++) {
            const Gain gain = mean_gain(result.gains[i]);
            std::printf("%s: %s is %.3fx as fast as %s, noise %.1f %%: %s\n", subject.name().c_str(),
                        text_of(choices[i]).c_str(), gain.ratio, text_of(subject.defaults).c_str(), 100 * noise,
                        is_beyond_noise(gain, noise)          ? "faster"
                        : is_slower_beyond_noise(gain, noise) ? "slower"
                                                              : "no difference");
        }
    }
    return 0;
}

int command_object(const Options &options) {
    const std::vector<Variant> variants = chosen_variants(options);
    if (options.kernels.empty() || variants.size() != 1 || options.output.empty()) {
        throw std::invalid_argument("object wants one --kernel, --dtype and --isa, and an --output");
    }
    const DefaultParameters defaults(options.tuned_directory + "/x86-64.json");
    const Choice choice = choice_named(options.choices.at(0), defaults.complete(variants[0]), *variants[0].space());
    bench::replace_file(options.output, Compiler().object(variants[0], choice));
    return 0;
}

}  // namespace halyard::tune
