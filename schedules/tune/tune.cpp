// Without another command: the search.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <limits>

#include "commands.h"
#include "measure.h"
#include "tuned_file.h"

namespace halyard::tune {
namespace {

constexpr double unlimited = std::numeric_limits<double>::infinity();

std::string readable(double seconds) {
    return seconds < 120 ? print("%.0f s", seconds) : print("%.0f min", seconds / 60);
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
void print_plan(const Session &session, const std::vector<Subject> &subjects) {
    // Compiled and verified; between samples; of a processor.
    constexpr double seconds_per_candidate = 0.4, seconds_beside_sample = 1.5e-3, bytes_per_second = 1e10,
                     flops_per_second = 8e10;
    constexpr double finals = 0.4;  // of the subjects; most defaults are not beaten in the screen
    const Effort &effort = session.effort;
    double total = 0;
    for (const Subject &subject : subjects) {
        const std::size_t choices = std::min(subject.choices().size(), effort.choices);
        std::printf("%s: %zu choices beside %s, in", subject.name().c_str(), choices,
                    text_of(subject.defaults).c_str());
        total += static_cast<double>(choices) * (subject.variant ? seconds_per_candidate : 0.1);
        for (const CaseId &id : subject.cases) {
            std::printf(" %s", id.name().c_str());
            const double call = std::max(static_cast<double>(id.bytes_moved()) / bytes_per_second,
                                         id.flops() / flops_per_second / id.threads);
            const auto seconds = [&](const Sampling &sampling, std::size_t contenders) {
                return (1 + rounds_on(id, sampling)) * static_cast<double>(contenders) *
                       (std::max(sampling.seconds_per_sample, 2 * call) + seconds_beside_sample);
            };
            total +=
                seconds(effort.screen, choices + 2) + finals * (seconds(effort.final, 5) + seconds(effort.final, 3));
        }
        std::printf("\n");
    }
    for (const std::string &reason : session.left_out) {
        std::printf("left out: %s\n", reason.c_str());
    }
    std::printf("about %s\n", readable(total).c_str());
}

/** What was gained and where. */
void print_gains(const std::vector<json> &decided) {
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
}

/** Decides each subject, by the records if they know it. */
int decide(Session &session, const std::vector<Subject> &subjects, double budget) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now();
    const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
    const auto stopped = [&] { return interrupted != 0 || elapsed() > budget; };
    std::vector<json> decided;
    std::size_t known = 0, faster = 0;
    bool has_failed = false;
    const auto place = [&] {
        const std::size_t searched = decided.size() - known;
        const double each = searched == 0 ? 0 : elapsed() / static_cast<double>(searched);
        return "/" + std::to_string(subjects.size()) + ", " +
               readable(std::min(each * static_cast<double>(subjects.size() - decided.size()), budget)) + " left";
    };
    for (const Subject &subject : subjects) {
        if (stopped()) {
            break;
        }
        const auto report = [&](const std::string &what) {
            if (isatty(STDERR_FILENO) != 0) {  // one line that is written again and again
                std::fprintf(stderr, "\r\x1b[K[%zu%s, %zu faster so far] %s: %s", decided.size() + 1, place().c_str(),
                             faster, subject.name().c_str(), what.c_str());
                std::fflush(stderr);
            }
        };
        try {
            report("looking it up");
            const json facts = session.facts_of(subject);
            auto decision =
                session.options.again ? std::nullopt : known_decision(session.records, facts, session.effort);
            const bool is_known = decision.has_value();
            std::vector<std::string> refused;
            if (!is_known) {
                const auto evaluator = make_evaluator(session, subject, stopped, report);
                decision =
                    search(subject.space, subject.target, subject.defaults, session.effort, session.random, *evaluator);
                refused = evaluator->refused;
            }
            if (!decision->is_made) {
                break;
            }
            json record = record_of(facts, *decision, session.effort.name, time_now());
            record["refused"] = refused;
            if (!is_known) {
                session.records.append(record);
            }
            known += is_known ? 1 : 0;
            faster += decision->is_better ? 1 : 0;
            decided.push_back(record);
            say("[" + std::to_string(decided.size()) + place() + "] " + sentence_of(record) +
                (is_known ? ", known" : ""));
        } catch (const RecordsError &) {
            throw;
        } catch (const std::exception &error) {
            say(subject.name() + ": " + error.what());
            has_failed = true;
        }
    }
    say(std::to_string(decided.size()) + " of " + std::to_string(subjects.size()) + " decided (" +
        std::to_string(known) + " known before) in " + readable(elapsed()));
    print_gains(decided);
    if (decided.size() < subjects.size() && !has_failed) {
        say(std::string(interrupted != 0 ? "interrupted" : "the time is up") + "; the same command goes on from here");
    }
    const int status = decided.empty() ? 0 : command_export(session);
    return interrupted != 0 ? exit_interrupted : has_failed ? exit_failure : status;
}

}  // namespace

int command_tune(const Options &options) {
    Session session(options);
    const std::vector<Subject> subjects = session.subjects();
    if (options.dry_run || subjects.empty()) {
        print_plan(session, subjects);
        return subjects.empty() ? exit_failure : 0;
    }
    // Refused now is what could not be written at the end.
    read_tuned(session.output, session.machine_name);
    session.records.require_writable();
    std::signal(SIGINT, [](int) { interrupted = 1; });
    std::signal(SIGTERM, [](int) { interrupted = 1; });
    return decide(session, subjects, options.budget.value_or(options.exhaustive ? unlimited : 1800));
}

}  // namespace halyard::tune
