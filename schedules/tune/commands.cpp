// The commands that do not search: list, show, export, compare and object.
#include "commands.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>

#include "bench/replace_file.h"
#include "measure.h"
#include "tuned_file.h"

namespace halyard::tune {
namespace {

void print_complaints(const std::vector<std::string> &complaints) {
    for (const std::string &line : complaints) {
        std::cerr << line << '\n';
    }
}

void print_space(const std::string &kernel, const std::string &family, const SearchSpace *space) {
    std::string text;
    for (const schedules::Tunable &parameter :
         space == nullptr ? std::vector<schedules::Tunable>() : space->parameters) {
        text += (text.empty() ? "" : "; ") + parameter.name;
        for (std::size_t i = 0; i < parameter.values.size(); i++) {
            text += (i == 0 ? " " : ", ") + std::to_string(parameter.values[i]);
        }
    }
    std::printf("%-26s %-12s %s\n", kernel.c_str(), family.c_str(), text.empty() ? "none" : text.c_str());
}

}  // namespace

std::string number(const char *format, double value) {
    char text[32];
    std::snprintf(text, sizeof(text), format, value);
    return text;
}

int command_list(const Options &options) {
    for (const KernelInfo &kernel : kernel_table()) {
        if (is_chosen(options, kernel)) {
            print_space(kernel.name, kernel.family, Variant{&kernel, "f32", isa_names().back()}.space());
        }
    }
    for (const SearchSpace &space : chosen_groups(options)) {
        print_space("runtime." + space.family, "runtime", &space);
    }
    return 0;
}

std::string sentence_of(const json &record) {
    const Decision decision = decision_of(record);
    const std::string ratio = text_of(decision.best) + " is " + number("%.3fx", decision.gain.ratio);
    return subject_of(record) + ": " +
           (decision.is_better
                ? ratio + " as fast as " + text_of(decision.defaults)
                : text_of(decision.defaults) + " stays" + (decision.best == decision.defaults ? "" : "; " + ratio)) +
           " (noise " + number("%.1f %%", 100 * decision.noise) + ", " + std::to_string(decision.tried) + " tried)";
}

std::string families_table(const std::vector<json> &records) {
    struct Family {
        std::vector<Gain> best;  // over the default, which it may be
        double largest = 1;
        int tried = 0, near = 0, faster = 0;
    };
    std::map<std::string, Family> families;
    for (const json &record : records) {
        const Decision decision = decision_of(record);
        for (const std::string &name : {record.at("family").get<std::string>(), std::string("all")}) {
            Family &family = families[name];
            const double best = std::max(1.0, decision.gain.ratio);
            family.best.push_back({best});
            family.largest = std::max(family.largest, best);
            family.tried += decision.tried;
            family.near += best <= 1.02 ? 1 : 0;
            family.faster += decision.is_better ? 1 : 0;
        }
    }
    std::ostringstream text;
    text << "| family | searched | choices tried | best found over the default, geometric mean | largest | defaults "
            "within 2 % of the best | get other parameters |\n|---|---|---|---|---|---|---|\n";
    for (const auto &[name, family] : families) {
        text << "| " << name << " | " << family.best.size() << " | " << family.tried << " | "
             << number("%.3f", mean_gain(family.best).ratio) << " | " << number("%.3f", family.largest) << " | "
             << family.near << " | " << family.faster << " |\n";
    }
    return text.str();
}

int command_show(const Options &options) {
    const Session session(options);
    std::vector<std::string> complaints = session.records.complaints();
    const std::vector<json> records = current_decisions(session.records, session.setting, complaints);
    std::cout << "Tuned on " << session.machine.cpu << ".\n\n"
              << families_table(records)
              << "\n| | default | best found | gain | noise | tried | taken |\n|---|---|---|---|---|---|---|\n";
    for (const json &record : records) {
        const Decision decision = decision_of(record);
        if (decision.best != decision.defaults) {
            std::cout << "| " << subject_of(record) << " | " << text_of(decision.defaults) << " | "
                      << text_of(decision.best) << " | " << number("%.3f", decision.gain.ratio) << " | "
                      << number("%.1f %%", 100 * decision.noise) << " | " << decision.tried << " | "
                      << (decision.is_better ? "yes" : "") << " |\n";
        }
    }
    print_complaints(complaints);
    return 0;
}

int export_decisions(Session &session) {
    std::vector<std::string> complaints = session.records.complaints();
    std::vector<json> decisions;
    for (const json &record : current_decisions(session.records, session.setting, complaints)) {
        const json now = session.facts_now(record);
        const std::string reason = now.empty() ? "there is no such kernel any more" : why_stale(record, now);
        if (reason.empty()) {
            decisions.push_back(record);
        } else {
            complaints.push_back("The decision on " + subject_of(record) + " does not count: " + reason + ".");
        }
    }
    print_complaints(complaints);
    if (decisions.empty()) {
        std::cerr << "halyard-tune: '" << session.options.database << "' holds no decision that counts here\n";
        return exit_failure;
    }
    const json file = tuned_file(decisions, session.setting, read_tuned(session.output, session.machine_name()));
    bench::replace_file(session.output, file.dump(4) + "\n");
    std::cerr << session.output << " has what was found; the next ./run build on such a machine takes it\n";
    return 0;
}

int command_export(const Options &options) {
    Session session(options);
    return export_decisions(session);
}

/** Times choices against the default parameters. */
int command_compare(const Options &options) {
    Session session(options);
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
            throw std::runtime_error(subject.name() + ": " + evaluator.refused().at(0));
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
    Session session(options);
    const Choice choice =
        choice_named(options.choices.at(0), session.defaults.complete(variants[0]), *variants[0].space());
    bench::replace_file(options.output, session.object(variants[0], choice));
    return 0;
}

}  // namespace halyard::tune
