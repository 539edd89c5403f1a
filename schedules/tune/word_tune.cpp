// Without a word: the search.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <optional>
#include <random>

#include "arena.h"
#include "export.h"
#include "order.h"
#include "progress.h"
#include "setting.h"
#include "text.h"
#include "words.h"

namespace halyard::tune {
namespace {

using Clock = std::chrono::steady_clock;

/** Variants with the calls by which they are judged. */
using Jobs = std::vector<std::pair<Variant, std::vector<Workload>>>;

/** Finds the works of each variant, and drops those that nothing can be done for. Where there are many, a quarter of
 * each family and type comes first, then the next. */
Jobs plan(const Options &options, Workshop &workshop, const UsualParameters &usual,
          std::vector<std::string> &left_out) {
    constexpr std::size_t rounds = 4;
    const std::vector<Shape> shapes = shapes_named(options.shapes, workshop.options.rigor.large_sets);
    Jobs jobs;
    std::vector<std::string> groups;
    for (const Variant &variant : chosen_variants(options)) {
        const auto target = variant.target_info(workshop.options.l1, workshop.options.l2);
        if (worthy_choices(*variant.space(), target, usual.complete(variant)).empty()) {
            left_out.push_back(variant.name() + ": there is nothing to choose");
            continue;
        }
        std::vector<Workload> workloads = workshop.finder.workloads(variant, shapes);
        if (workloads.empty()) {
            left_out.push_back(variant.name() + ": no call of the library reaches it on these shapes");
            continue;
        }
        jobs.emplace_back(variant, std::move(workloads));
        groups.push_back(variant.kernel->family + " " + variant.dtype + " " + variant.isa);
    }
    Jobs ordered;
    for (const std::size_t i : in_shares(groups, rounds)) {
        ordered.push_back(jobs[i]);
    }
    return ordered;
}

/** Shows what would be tried. */
void print_plan(const Jobs &jobs, const std::vector<std::string> &left_out, const TuneOptions &tuning,
                const UsualParameters &usual) {
    for (const auto &[variant, workloads] : jobs) {
        const auto target = variant.target_info(tuning.l1, tuning.l2);
        std::printf("%s: %zu choices beside %s, in", variant.name().c_str(),
                    worthy_choices(*variant.space(), target, usual.complete(variant)).size(),
                    text_of(usual.complete(variant)).c_str());
        for (const Workload &workload : workloads) {
            std::printf(" %s", workload.name().c_str());
        }
        std::printf("\n");
    }
    for (const std::string &reason : left_out) {
        std::printf("left out: %s\n", reason.c_str());
    }
}

/** One run of the tuner over its jobs. */
class Run {
public:
    Run(const Options &given, double seconds, const TuneOptions &chosen, const Setting &here, Workshop &shop,
        const Jobs &all)
        : options(given), tuning(chosen), setting(here), workshop(shop), jobs(all), budget(seconds),
          database(given.database), verdicts(all.size()) {
        print_complaints(database.complaints());
        database.open_for_append();
        std::seed_seq seed{options.seed};
        random.seed(seed);
    }

    /** Decides the jobs, then looks again at those that the noise left in doubt, as long as there is time. */
    void decide_all() {
        for (std::size_t i = 0; i < jobs.size() && !stopped(); i++) {
            on_job(i, [this](std::size_t job) { decide(job); });
        }
        std::vector<std::size_t> doubtful;
        for (std::size_t i = 0; i < jobs.size() && done == jobs.size(); i++) {
            if (verdicts[i] && is_doubtful(*verdicts[i])) {
                doubtful.push_back(i);
            }
        }
        std::stable_sort(doubtful.begin(), doubtful.end(), [this](std::size_t a, std::size_t b) {
            return verdicts[a]->gain.ratio > verdicts[b]->gain.ratio;
        });
        for (std::size_t i = 0; i < doubtful.size() && !stopped(); i++) {
            on_job(doubtful[i], [this](std::size_t job) { look_again(job); });
        }
    }

    void print_summary() {
        std::vector<Gain> gains;
        for (const auto &verdict : verdicts) {
            if (verdict) {
                gains.push_back(verdict->is_better ? verdict->gain : Gain());
            }
        }
        progress.say(std::to_string(done) + " of " + std::to_string(jobs.size()) + " kernels decided (" +
                     std::to_string(known) + " known before)" +
                     (looks > 0 ? ", " + std::to_string(looks) + " looked at again" : "") + ", " +
                     std::to_string(candidates) + " candidates in " + readable(elapsed()) +
                     (busy > 0 ? ", " + number("%.1f", static_cast<double>(candidates) / busy) + " per second" : "") +
                     "; geometric mean of the gains " + number("%.3fx", mean_gain(gains).ratio));
        if (done < jobs.size()) {
            progress.say(interrupted != 0 ? "interrupted; the same command goes on from here"
                                          : "the time is up; the same command goes on from here");
        }
    }

    bool has_verdicts() const { return done > 0; }
    bool has_failed() const { return failed; }

private:
    double elapsed() const { return std::chrono::duration<double>(Clock::now() - begin).count(); }
    bool stopped() const { return interrupted != 0 || elapsed() > budget; }

    std::string time_left() const {
        const std::size_t searched = done - known;
        const double rest =
            searched == 0 ? budget : busy / static_cast<double>(searched) * static_cast<double>(jobs.size() - done);
        return readable(std::max(0.0, std::min(rest, budget - elapsed())));
    }

    void report(const Variant &variant, const std::string &what) {
        progress.show("[" + std::to_string(std::min(done + 1, jobs.size())) + "/" + std::to_string(jobs.size()) + ", " +
                      time_left() + " left, best " + best + "] " + variant.name() + ": " + what);
    }

    template<typename Work>
    void on_job(std::size_t job, const Work &work) {
        try {
            work(job);
        } catch (const DatabaseError &) {
            throw;
        } catch (const NoRoom &) {
            throw;
        } catch (const std::exception &error) {
            progress.say(jobs[job].first.name() + ": " + error.what());
            failed = true;
            if (!verdicts[job]) {
                done++;
                known++;
            }
        }
    }

    KernelArena arena_of(std::size_t job) {
        const Variant &variant = jobs[job].first;
        return {workshop,
                variant,
                jobs[job].second,
                database,
                setting,
                random,
                [this] { return stopped(); },
                [this, &variant](const std::string &what) { report(variant, what); }};
    }

    void decide(std::size_t job) {
        const auto &[variant, workloads] = jobs[job];
        report(variant, "looking it up");
        const Choice usual = workshop.usual.complete(variant);
        const Subject subject = workshop.subject(variant, workloads);
        std::optional<Verdict> verdict;
        if (!options.again) {
            verdict = known_verdict(database, setting, subject, tuning.rigor);
        }
        if (verdict) {
            known++;
        } else {
            const double before = elapsed();
            KernelArena arena = arena_of(job);
            if (done == known) {
                // The first time, how much equal code differs here and now.
                const auto noise = arena.duel(usual, usual, tuning.rigor.last);
                if (noise) {
                    progress.say("noise: the same code twice differs by " + number("%.1f %%", 100 * noise->noise) +
                                 " (" + variant.name() + "); a winner must gain more than 2 % and three times that");
                }
            }
            const Outcome outcome =
                search(*variant.space(), variant.target_info(tuning.l1, tuning.l2), usual, tuning.rigor, random, arena);
            if (!outcome.is_decided) {
                return;
            }
            verdict = verdict_of(outcome, usual);
            busy += elapsed() - before;
            candidates += static_cast<std::size_t>(outcome.tried);
            arena.keep(*verdict, options.seed);
        }
        done++;
        take(job, *verdict, time_left() + " left");
    }

    void look_again(std::size_t job) {
        const Verdict before = *verdicts[job];
        KernelArena arena = arena_of(job);
        const Outcome outcome = challenge(before.runner_up, before.usual, rigors().back(), arena);
        if (!outcome.is_decided) {
            return;
        }
        Verdict verdict = verdict_of(outcome, before.usual);
        verdict.tried = before.tried;
        verdict.looks = 2;
        arena.keep(verdict, options.seed);
        looks++;
        take(job, verdict, "looked at again");
    }

    void take(std::size_t job, const Verdict &verdict, const std::string &remark) {
        const Variant &variant = jobs[job].first;
        verdicts[job] = verdict;
        if (verdict.is_better && verdict.gain.ratio > best_ratio) {
            best_ratio = verdict.gain.ratio;
            best = variant.name() + " " + number("%.2fx", best_ratio);
        }
        progress.say("[" + std::to_string(done) + "/" + std::to_string(jobs.size()) + ", " + remark + "] " +
                     summary_of(variant, verdict));
    }

    const Options &options;
    const TuneOptions &tuning;
    const Setting &setting;
    Workshop &workshop;
    const Jobs &jobs;
    const double budget;
    const Clock::time_point begin = Clock::now();
    Database database;
    std::mt19937 random;
    Progress progress;
    std::vector<std::optional<Verdict>> verdicts;  // of each job
    std::size_t done = 0, known = 0, looks = 0, candidates = 0;
    double busy = 0;  // seconds of verdicts that were not known
    std::string best = "none yet";
    double best_ratio = 1;
    bool failed = false;
};

}  // namespace

int word_tune(const Options &options) {
    const double budget = seconds_of(options.budget);
    const bench::Machine machine = bench::describe_machine();
    const Setting setting = describe_setting(machine);
    const UsualParameters usual = usual_parameters(options);
    const TuneOptions tuning = tune_options(options, machine);
    Workshop workshop(usual, tuning);
    std::vector<std::string> left_out;
    const Jobs jobs = plan(options, workshop, usual, left_out);
    if (options.dry_run) {
        print_plan(jobs, left_out, tuning, usual);
        return 0;
    }
    if (jobs.empty()) {
        print_complaints(left_out);
        std::cerr << "halyard-tune: nothing to tune\n";
        return exit_failure;
    }
    read_tuned(output_file(options, machine), setting);  // refuses now what could not be written at the end
    Run run(options, budget, tuning, setting, workshop, jobs);
    std::signal(SIGINT, [](int) { interrupted = 1; });
    std::signal(SIGTERM, [](int) { interrupted = 1; });
    run.decide_all();
    run.print_summary();
    const int status = run.has_verdicts() ? word_export(options) : 0;
    return interrupted != 0 ? exit_interrupted : run.has_failed() ? exit_failure : status;
}

}  // namespace halyard::tune
