// Without another command: the search.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <limits>
#include <stdexcept>

#include "commands.h"
#include "measure.h"
#include "tuned_file.h"

namespace halyard::tune {
namespace {

using Clock = std::chrono::steady_clock;

/** "90s", "10m" or "2h". */
double seconds_of(const std::string &text) {
    double value = 0;
    char unit = 's', rest = 0;
    const int fields = std::sscanf(text.c_str(), "%lf%c%c", &value, &unit, &rest);
    const double factor = unit == 's' ? 1 : unit == 'm' ? 60 : unit == 'h' ? 3600 : 0;
    if (fields < 1 || fields > 2 || !(value * factor > 0)) {
        throw std::invalid_argument("--budget is '" + text + "'; give a time like 90s, 10m or 2h");
    }
    return value * factor;
}

std::string readable(double seconds) {
    return seconds < 120 ? number("%.0f s", seconds) : number("%.0f min", seconds / 60);
}

std::string time_now() {
    const std::time_t now = std::time(nullptr);
    char text[32];
    std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
    return text;
}

/** A line that stays. On a terminal the line of progress goes. */
void say(const std::string &text) {
    std::fprintf(stderr, "%s%s\n", isatty(STDERR_FILENO) != 0 ? "\r\x1b[K" : "", text.c_str());
}

/** What would be tried, and how long it takes on an idle machine, as far as that can be said before. */
void print_plan(const std::vector<Subject> &subjects, const std::vector<std::string> &left_out, const Effort &effort) {
    // Compiled and verified; between samples; of a processor.
    constexpr double seconds_per_candidate = 0.4, seconds_beside_sample = 1.5e-3, bytes_per_second = 1e10,
                     flops_per_second = 8e10;
    constexpr double finals = 0.4;  // of the subjects; most defaults are not beaten in the screen
    double total = 0;
    for (const Subject &subject : subjects) {
        const std::size_t choices =
            std::min(worthy_choices(subject.space, subject.target, subject.defaults).size(), effort.choices);
        std::printf("%s: %zu choices beside %s, in", subject.name().c_str(), choices,
                    text_of(subject.defaults).c_str());
        total += static_cast<double>(choices) * (subject.variant ? seconds_per_candidate : 0.1);
        for (const TuningCase &tuning_case : subject.cases) {
            std::printf(" %s", tuning_case.name().c_str());
            const double call = std::max(static_cast<double>(tuning_case.id.bytes_moved()) / bytes_per_second,
                                         tuning_case.id.flops() / flops_per_second / tuning_case.id.threads);
            const auto seconds = [&](const Sampling &sampling, std::size_t contenders) {
                return (1 + rounds_on(tuning_case, sampling)) * static_cast<double>(contenders) *
                       (std::max(sampling.seconds_per_sample, 2 * call) + seconds_beside_sample);
            };
            total +=
                seconds(effort.screen, choices + 2) + finals * (seconds(effort.final, 5) + seconds(effort.final, 3));
        }
        std::printf("\n");
    }
    for (const std::string &reason : left_out) {
        std::printf("left out: %s\n", reason.c_str());
    }
    std::printf("about %s\n", readable(total).c_str());
}

/** One run of the tuner over its subjects. */
class Run {
public:
    Run(Session &in, const std::vector<Subject> &all, double seconds) : session(in), subjects(all), budget(seconds) {
        session.records.require_writable();
    }

    void decide_all() {
        for (const Subject &subject : subjects) {
            try {
                decide(subject);
            } catch (const RecordsError &) {
                throw;
            } catch (const std::exception &error) {
                say(subject.name() + ": " + error.what());
                failed = true;
            }
        }
    }

    /** What was gained and where. */
    void print_summary() const {
        say(std::to_string(decided.size()) + " of " + std::to_string(subjects.size()) + " decided (" +
            std::to_string(known) + " known before) in " + readable(elapsed()));
        say("\n" + families_table(decided));
        std::vector<json> best;
        std::copy_if(decided.begin(), decided.end(), std::back_inserter(best),
                     [](const json &record) { return record["is_better"].get<bool>(); });
        std::sort(best.begin(), best.end(), [](const json &a, const json &b) { return a["ratio"] > b["ratio"]; });
        say(best.empty() ? "Nothing is faster than the default parameters beyond the noise."
                         : std::to_string(best.size()) + " get other parameters. Those that gain most:");
        for (std::size_t i = 0; i < std::min<std::size_t>(3, best.size()); i++) {
            say("  " + sentence_of(best[i]));
        }
        if (decided.size() < subjects.size() && !failed) {
            say(std::string(interrupted != 0 ? "interrupted" : "the time is up") +
                "; the same command goes on from here");
        }
    }

    bool has_decisions() const { return !decided.empty(); }
    bool has_failed() const { return failed; }

private:
    double elapsed() const { return std::chrono::duration<double>(Clock::now() - begin).count(); }
    bool stopped() const { return interrupted != 0 || elapsed() > budget; }

    std::string place() const {
        const std::size_t searched = decided.size() - known;
        const double each = searched == 0 ? 0 : elapsed() / static_cast<double>(searched);
        return "/" + std::to_string(subjects.size()) + ", " +
               readable(std::min(each * static_cast<double>(subjects.size() - decided.size()), budget)) + " left";
    }

    void decide(const Subject &subject) {
        const auto report = [&](const std::string &what) {
            if (isatty(STDERR_FILENO) != 0) {  // one line that is written again and again
                std::fprintf(stderr, "\r\x1b[K[%zu%s, %zu faster so far] %s: %s", decided.size() + 1, place().c_str(),
                             faster, subject.name().c_str(), what.c_str());
                std::fflush(stderr);
            }
        };
        if (stopped()) {
            return;
        }
        report("looking it up");
        const json facts = session.facts_of(subject);
        std::optional<Decision> decision;
        if (!session.options.again) {
            decision = known_decision(session.records, facts, session.effort);
        }
        json record;
        if (decision) {
            known++;
            record = record_of(facts, *decision, session.effort.name, time_now());
        } else {
            CallEvaluator evaluator(
                session, subject, [this] { return stopped(); }, report);
            decision =
                search(subject.space, subject.target, subject.defaults, session.effort, session.random, evaluator);
            if (!decision->is_made) {
                return;
            }
            record = record_of(facts, *decision, session.effort.name, time_now());
            record["refused"] = evaluator.refused();
            session.records.append(record);
        }
        faster += decision->is_better ? 1 : 0;
        decided.push_back(record);
        say("[" + std::to_string(decided.size()) + place() + "] " + sentence_of(record) +
            (decision->is_remembered ? ", known" : ""));
    }

    Session &session;
    const std::vector<Subject> &subjects;
    const double budget;
    const Clock::time_point begin = Clock::now();
    std::vector<json> decided;
    std::size_t known = 0, faster = 0;
    bool failed = false;
};

}  // namespace

int command_tune(const Options &options) {
    const double unlimited = std::numeric_limits<double>::infinity();
    const double budget = options.budget.empty() ? (options.exhaustive ? unlimited : 1800) : seconds_of(options.budget);
    Session session(options);
    std::vector<std::string> left_out;
    const std::vector<Subject> subjects = session.subjects(left_out);
    if (options.dry_run) {
        print_plan(subjects, left_out, session.effort);
        return 0;
    }
    if (subjects.empty()) {
        for (const std::string &reason : left_out) {
            say(reason);
        }
        throw std::runtime_error("nothing to tune");
    }
    read_tuned(session.output, session.machine_name());  // refuses now what could not be written at the end
    Run run(session, subjects, budget);
    std::signal(SIGINT, [](int) { interrupted = 1; });
    std::signal(SIGTERM, [](int) { interrupted = 1; });
    run.decide_all();
    run.print_summary();
    const int status = run.has_decisions() ? export_decisions(session) : 0;
    return interrupted != 0 ? exit_interrupted : run.has_failed() ? exit_failure : status;
}

}  // namespace halyard::tune
