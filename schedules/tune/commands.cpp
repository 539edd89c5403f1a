// The commands that do not search: list, show, export, compare and object.
#include "commands.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <stdexcept>

#include "bench/replace_file.h"
#include "measure.h"
#include "tuned_file.h"

namespace halyard::tune {
namespace {

void complain(const std::vector<std::string> &lines) {
    for (const std::string &line : lines) {
        std::cerr << line << '\n';
    }
}

}  // namespace

int command_list(const Options &options) {
    for (const KernelInfo &kernel : kernel_table()) {
        if (is_chosen(options, kernel)) {
            const SearchSpace *space = Variant{0, &kernel, "", ""}.space();
            std::printf("%-26s %-12s %s\n", kernel.name.c_str(), kernel.family.c_str(),
                        space == nullptr ? "none" : text_of(*space).c_str());
        }
    }
    for (const SearchSpace &space : chosen_groups(options)) {
        std::printf("%-26s %-12s %s\n", ("runtime." + space.family).c_str(), "runtime", text_of(space).c_str());
    }
    return 0;
}

std::string sentence_of(const json &record) {
    const Decision decision = decision_of(record);
    const std::string best = text_of(decision.best) + " is " + print("%.3fx", decision.ratio),
                      usual = text_of(decision.defaults);
    return subject_of(record) + ": " +
           (decision.is_better                   ? best + " as fast as " + usual
            : decision.best == decision.defaults ? usual + " stays"
                                                 : usual + " stays; " + best) +
           print(" (noise %.1f %%, %d tried)", 100 * decision.noise, decision.tried);
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
            const double best = std::max(1.0, decision.ratio);
            family.best.push_back({best});
            family.largest = std::max(family.largest, best);
            family.tried += decision.tried;
            family.near += best <= 1.02 ? 1 : 0;
            family.faster += decision.is_better ? 1 : 0;
        }
    }
    std::string text = "| family | searched | choices tried | best found over the default, geometric mean | largest | "
                       "defaults within 2 % of the best | get other parameters |\n|---|---|---|---|---|---|---|\n";
    for (const auto &[name, family] : families) {
        text += print("| %s | %zu | %d | %.3f | %.3f | %d | %d |\n", name.c_str(), family.best.size(), family.tried,
                      mean_gain(family.best).ratio, family.largest, family.near, family.faster);
    }
    return text;
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
                      << text_of(decision.best)
                      << print(" | %.3f | %.1f %% | %d | %s |\n", decision.ratio, 100 * decision.noise, decision.tried,
                               decision.is_better ? "yes" : "");
        }
    }
    complain(complaints);
    return 0;
}

int command_export(Session &session) {
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
    complain(complaints);
    if (decisions.empty()) {
        throw std::runtime_error("'" + session.options.database + "' holds no decision that counts here");
    }
    const json file = tuned_file(decisions, session.setting, read_tuned(session.output, session.machine_name));
    bench::replace_file(session.output, file.dump(4) + "\n");
    std::cerr << session.output << " has what was found; the next ./run build on such a machine takes it\n";
    return 0;
}

/** Times choices against the default parameters. */
int command_compare(const Options &options) {
    Session session(options);
    const std::vector<Subject> subjects = session.subjects();
    if (options.kernels.front() == "all" || subjects.empty()) {
        throw std::invalid_argument("compare wants a --kernel that has parameters");
    }
    for (const Subject &subject : subjects) {
        std::vector<Choice> choices;
        for (const std::string &text : options.choices) {
            choices.push_back(choice_named(text, subject.defaults, subject.space));
        }
        const auto evaluator = make_evaluator(
            session, subject, [] { return interrupted != 0; }, [](const std::string &) {});
        if (evaluator->admitted(choices).size() < choices.size() && interrupted == 0) {
            throw std::runtime_error(subject.name() + ": " + evaluator->refused.at(0));
        }
        const auto result = evaluator->compare(choices, session.effort.final, true);
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
    if (variants.size() != 1 || options.output.empty()) {
        throw std::invalid_argument("object wants one --kernel, --dtype and --isa, and an --output");
    }
    const Choice choice = choice_named(options.choices.at(0), variants[0].defaults(), *variants[0].space());
    bench::replace_file(options.output, Compiler().object(variants[0], choice));
    return 0;
}

}  // namespace halyard::tune
