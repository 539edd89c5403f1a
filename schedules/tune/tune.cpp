// Without another command: the search.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <limits>
#include <stdexcept>

#include "bench/replace_file.h"
#include "commands.h"
#include "evaluator.h"
#include "tuned_file.h"

namespace halyard::tune {
namespace {

using Clock = std::chrono::steady_clock;

/** "90s", "10m" or "2h". */
double seconds_of(const std::string &text) {
    std::size_t end = 0;
    double value = -1;
    try {
        value = std::stod(text, &end);
    } catch (const std::exception &) {
    }
    const std::string unit = text.substr(end);
    const double factor = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : -1;
    if (!(value > 0 && factor > 0)) {
        throw std::invalid_argument("--budget is '" + text + "'; give a time like 90s, 10m or 2h");
    }
    return value * factor;
}

std::string readable(double seconds) {
    return seconds < 120 ? number("%.0f s", seconds) : number("%.0f min", seconds / 60);
}

/** One line on a terminal that is written again and again; elsewhere only what is to stay. */
class Progress {
public:
    void show(const std::string &text) const {
        if (is_terminal) {
            std::fprintf(stderr, "\r\x1b[K%s", text.c_str());
            std::fflush(stderr);
        }
    }
    void say(const std::string &text) const {
        std::fprintf(stderr, "%s%s\n", is_terminal ? "\r\x1b[K" : "", text.c_str());
    }

private:
    const bool is_terminal = isatty(STDERR_FILENO) != 0;
};

std::string sentence_of(const Decided &decided) {
    const Decision &decision = decided.decision;
    std::string text = decided.name + ": " + text_of(decision.defaults) + " stays";
    if (decision.is_better) {
        text = decided.name + ": " + text_of(decision.best) + " is " + number("%.3fx", decision.gain.ratio) +
               " as fast as " + text_of(decision.defaults);
    } else if (decision.best != decision.defaults) {
        text += "; " + text_of(decision.best) + " is " + number("%.3fx", decision.gain.ratio);
    }
    return text + " (noise " + number("%.1f %%", 100 * decision.noise) + ", " + std::to_string(decision.tried) +
           " tried)" + (decision.is_remembered ? ", known" : "");
}

std::size_t choices_of(const Subject &subject, const Effort &effort) {
    return std::min(worthy_choices(subject.space, subject.target, subject.defaults).size(), effort.choices);
}

/** What would be tried, and how long it takes on an idle machine, as far as that can be said before. */
void print_plan(const std::vector<Subject> &subjects, const std::vector<std::string> &left_out, const Effort &effort) {
    constexpr double seconds_per_candidate = 0.4,
                     seconds_beside_sample = 1e-3;  // compiled and verified; between samples
    double total = 0;
    for (const Subject &subject : subjects) {
        const std::size_t choices = choices_of(subject, effort);
        std::printf("%s: %zu choices beside %s, in", subject.name().c_str(), choices,
                    text_of(subject.defaults).c_str());
        total += static_cast<double>(choices) * (subject.variant ? seconds_per_candidate : 0.1);
        for (const TuningCase &tuning_case : subject.cases) {
            std::printf(" %s", tuning_case.name().c_str());
            const double call =
                std::max(static_cast<double>(tuning_case.id.bytes_moved()) / 5e9, tuning_case.id.flops() / 3e10);
            const auto seconds = [&](const Sampling &sampling, std::size_t contenders) {
                return sampling.rounds * static_cast<double>(contenders) *
                       (std::max(sampling.seconds_per_sample, 2 * call) + seconds_beside_sample);
            };
            total += seconds(effort.screen, choices + 2) + seconds(effort.final, 5) + seconds(effort.final, 3);
        }
        std::printf("\n");
    }
    for (const std::string &reason : left_out) {
        std::printf("left out: %s\n", reason.c_str());
    }
    std::printf("about %s or more\n", readable(total).c_str());
}

/** One run of the tuner over its subjects. */
class Run {
public:
    Run(TuningSession &in, const std::vector<Subject> &all, double seconds)
        : session(in), subjects(all), budget(seconds) {
        print_lines(session.database.complaints());
        session.database.open_for_append();
    }

    void decide_all() {
        for (const Subject &subject : subjects) {
            if (stopped()) {
                return;
            }
            try {
                decide(subject);
            } catch (const DatabaseError &) {
                throw;
            } catch (const NoRoom &) {
                throw;
            } catch (const std::exception &error) {
                progress.say(subject.name() + ": " + error.what());
                failed = true;
            }
        }
    }

    /** What was gained and where. */
    void print_summary() const {
        progress.say(std::to_string(decisions.size()) + " of " + std::to_string(subjects.size()) + " decided (" +
                     std::to_string(known) + " known before), " + std::to_string(candidates) + " candidates in " +
                     readable(elapsed()));
        if (faster == 0) {
            progress.say("Nothing is faster than the default parameters beyond the noise.");
        }
        for (const auto &[name, family] : summary_of(decisions)) {
            if (family.faster > 0) {
                progress.say(name + ": " + std::to_string(family.faster) + " of " +
                             std::to_string(family.gains.size()) +
                             " get other parameters, and the geometric mean of the gains of all of them is " +
                             number("%.3fx", mean_gain(family.gains).ratio));
            }
        }
        std::vector<Decided> best = decisions;
        std::sort(best.begin(), best.end(), [](const Decided &a, const Decided &b) {
            return a.decision.is_better * a.decision.gain.ratio > b.decision.is_better * b.decision.gain.ratio;
        });
        for (std::size_t i = 0; i < std::min<std::size_t>(3, faster); i++) {
            progress.say((i == 0 ? "Most: " : "      ") + sentence_of(best[i]));
        }
        if (decisions.size() < subjects.size() && !failed) {
            progress.say(std::string(interrupted != 0 ? "interrupted" : "the time is up") +
                         "; the same command goes on from here");
        }
    }

    bool has_decisions() const { return !decisions.empty(); }
    bool has_failed() const { return failed; }

private:
    double elapsed() const { return std::chrono::duration<double>(Clock::now() - begin).count(); }
    bool stopped() const { return interrupted != 0 || elapsed() > budget; }

    std::string time_left() const {
        const std::size_t searched = decisions.size() - known;
        const double per_subject = searched == 0 ? 0 : elapsed() / static_cast<double>(searched);
        return readable(std::min(per_subject * static_cast<double>(subjects.size() - decisions.size()), budget)) +
               " left";
    }

    void decide(const Subject &subject) {
        const auto report = [&](const std::string &what) {
            progress.show("[" + std::to_string(decisions.size() + 1) + "/" + std::to_string(subjects.size()) + ", " +
                          time_left() + ", " + std::to_string(faster) + " faster so far] " + subject.name() + ": " +
                          what);
        };
        report("looking it up");
        std::optional<Decision> decision;
        if (!session.options.again) {
            decision = known_decision(session.database, session.setting, session.key_of(subject), session.effort);
        }
        if (!decision) {
            CallEvaluator evaluator(
                session, subject, [this] { return stopped(); }, report);
            decision =
                search(subject.space, subject.target, subject.defaults, session.effort, session.random, evaluator);
            if (!decision->is_made) {
                return;
            }
            candidates += decision->tried;
            evaluator.keep(*decision);
        }
        known += decision->is_remembered ? 1 : 0;
        faster += decision->is_better ? 1 : 0;
        decisions.push_back({subject.name(), subject.family(), *decision});
        progress.say("[" + std::to_string(decisions.size()) + "/" + std::to_string(subjects.size()) + ", " +
                     time_left() + "] " + sentence_of(decisions.back()));
    }

    TuningSession &session;
    const std::vector<Subject> &subjects;
    const double budget;
    const Clock::time_point begin = Clock::now();
    Progress progress;
    std::vector<Decided> decisions;
    std::size_t known = 0, faster = 0;
    int candidates = 0;
    bool failed = false;
};

}  // namespace

int command_tune(const Options &options) {
    const double unlimited = std::numeric_limits<double>::infinity();
    const double budget = options.budget.empty() ? (options.exhaustive ? unlimited : 1800) : seconds_of(options.budget);
    TuningSession session(options);
    std::vector<std::string> left_out;
    const std::vector<Subject> subjects = session.subjects(left_out);
    if (options.dry_run) {
        print_plan(subjects, left_out, session.effort);
        return 0;
    }
    if (subjects.empty()) {
        print_lines(left_out);
        std::cerr << "halyard-tune: nothing to tune\n";
        return exit_failure;
    }
    read_tuned(session.output, session.setting);  // refuses now what could not be written at the end
    Run run(session, subjects, budget);
    std::signal(SIGINT, [](int) { interrupted = 1; });
    std::signal(SIGTERM, [](int) { interrupted = 1; });
    run.decide_all();
    run.print_summary();
    const int status = run.has_decisions() ? export_decisions(session) : 0;
    std::vector<std::string> ignored;
    const std::string table = std::filesystem::path(options.database).replace_extension(".md");
    bench::replace_file(table,
                        markdown_of(current_decisions(session.database, session.setting, ignored), session.setting));
    std::cerr << table << " has all decisions as a table\n";
    return interrupted != 0 ? exit_interrupted : run.has_failed() ? exit_failure : status;
}

}  // namespace halyard::tune
