// halyard-tune: finds better parameters of schedules for this machine (docs/tuning.md).
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <sstream>

#include "export.h"
#include "hash.h"
#include "setting.h"
#include "tuner.h"

namespace halyard::tune {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

volatile std::sig_atomic_t interrupted = 0;

constexpr int exit_failure = 1, exit_usage = 2, exit_interrupted = 130;

struct Options {
    std::string kernels, isas, dtypes = "all", shapes = "usual", budget = "30m", rigor = "normal";
    int threads = 1;
    unsigned seed = 1;
    bool dry_run = false, list = false, again = false;
    std::string database = "tune.jsonl", tuned_directory = HALYARD_TUNE_TUNED_DIR, output;
    std::string first, second;  // of compare
};

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

/** Seconds of "90", "90s", "10m" or "2h". */
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
    char text[32];
    const int whole = static_cast<int>(seconds + 0.5);
    if (whole < 120) {
        std::snprintf(text, sizeof(text), "%d s", whole);
    } else {
        std::snprintf(text, sizeof(text), "%d min", (whole + 30) / 60);
    }
    return text;
}

std::string number(const char *format, double value) {
    char text[32];
    std::snprintf(text, sizeof(text), format, value);
    return text;
}

// ---- what is tuned ----

std::vector<std::string> chosen_isas(const std::string &list) {
    std::vector<std::string> supported;
    for (const std::string &isa : isa_names()) {
        if (halyard_isa_supported(isa_named(isa)) != 0) {
            supported.push_back(isa);
        }
    }
    if (list.empty()) {
        return {supported.back()};
    }
    if (list == "all") {
        return supported;
    }
    for (const std::string &isa : words_of(list)) {
        if (std::find(supported.begin(), supported.end(), isa) == supported.end()) {
            throw std::invalid_argument("--isa: this machine has no '" + isa + "'; it has " + join(supported) +
                                        ", and all");
        }
    }
    return words_of(list);
}

std::vector<std::string> chosen_dtypes(const std::string &list) {
    if (list == "all") {
        return dtype_names();
    }
    for (const std::string &dtype : words_of(list)) {
        if (std::find(dtype_names().begin(), dtype_names().end(), dtype) == dtype_names().end()) {
            throw std::invalid_argument("--dtype: there is no '" + dtype + "'; there are " + join(dtype_names()) +
                                        ", and all");
        }
    }
    return words_of(list);
}

std::vector<const KernelInfo *> chosen_kernels(const std::string &list) {
    std::vector<std::string> families, names;
    for (const KernelInfo &kernel : kernel_table()) {
        names.push_back(kernel.name);
        if (std::find(families.begin(), families.end(), kernel.family) == families.end()) {
            families.push_back(kernel.family);
        }
    }
    const std::vector<std::string> words = words_of(list);
    for (const std::string &word : words) {
        if (std::find(names.begin(), names.end(), word) == names.end() &&
            std::find(families.begin(), families.end(), word) == families.end()) {
            throw std::invalid_argument("--kernel: there is no kernel or family '" + word +
                                        "'. Families: " + join(families) + ". Kernels: " + join(names) + ".");
        }
    }
    std::vector<const KernelInfo *> kernels;
    for (const KernelInfo &kernel : kernel_table()) {
        const auto is_meant = [&](const std::string &word) {
            return word == kernel.name || (word == kernel.family && find_kernel(word) == nullptr);
        };
        if (words.empty() || std::any_of(words.begin(), words.end(), is_meant)) {
            kernels.push_back(&kernel);
        }
    }
    return kernels;
}

std::vector<Variant> chosen_variants(const Options &options) {
    std::vector<Variant> variants;
    for (const std::string &isa : chosen_isas(options.isas)) {
        for (const std::string &dtype : chosen_dtypes(options.dtypes)) {
            for (const KernelInfo *kernel : chosen_kernels(options.kernels)) {
                const Variant variant{kernel, dtype, isa};
                if (variant.space() != nullptr && slot_of(variant) >= 0) {
                    variants.push_back(variant);
                }
            }
        }
    }
    return variants;
}

// ---- progress ----

/** One line on a terminal that is written again and again; elsewhere only what is to stay. */
class Progress {
public:
    void show(const std::string &text) {
        if (is_terminal) {
            std::fprintf(stderr, "\r\x1b[K%s", text.c_str());
            std::fflush(stderr);
        }
    }
    void say(const std::string &text) { std::fprintf(stderr, "%s%s\n", is_terminal ? "\r\x1b[K" : "", text.c_str()); }

private:
    const bool is_terminal = isatty(STDERR_FILENO) != 0;
};

std::string summary_of(const Variant &variant, const Verdict &verdict) {
    std::string text = variant.name() + ": ";
    if (verdict.is_better) {
        text += text_of(verdict.best) + " is " + number("%.3f", verdict.gain.ratio) + "x as fast as " +
                text_of(verdict.usual);
    } else {
        text += text_of(verdict.usual) + " stays";
        if (verdict.runner_up != verdict.usual) {
            text += "; " + text_of(verdict.runner_up) + " is " + number("%.3f", verdict.gain.ratio) + "x";
        }
    }
    return text + " (noise " + number("%.1f %%", 100 * verdict.noise) + ", " + std::to_string(verdict.tried) +
           " tried)" + (verdict.is_remembered ? ", known" : "");
}

// ---- the words ----

std::string output_file(const Options &options, const bench::Machine &machine) {
    return !options.output.empty() ? options.output : options.tuned_directory + "/" + machine_name(machine) + ".json";
}

void print_complaints(const std::vector<std::string> &complaints) {
    for (const std::string &complaint : complaints) {
        std::cerr << complaint << '\n';
    }
}

int word_export(const Options &options) {
    const bench::Machine machine = bench::describe_machine();
    const Setting setting = describe_setting(machine);
    const Database database(options.database);
    std::vector<std::string> complaints = database.complaints();
    std::vector<json> verdicts = current_verdicts(database, setting, complaints);
    // What has another space or other code than the kernels of this program is stale.
    const UsualParameters usual(options.tuned_directory + "/x86-64.json");
    Compiler compiler;
    const auto is_stale = [&](const json &verdict) {
        const Variant variant{find_kernel(verdict.at("kernel")), verdict.at("dtype"), verdict.at("isa")};
        std::string reason = "there is no such kernel any more";
        if (variant.kernel != nullptr && variant.space() != nullptr && slot_of(variant) >= 0) {
            Subject subject{variant.kernel->name,  variant.dtype,           variant.isa,
                            verdict.at("threads"), verdict.at("workloads"), hash_of_space(*variant.space()),
                            verdict.at("code")};
            reason = why_stale(verdict, subject);
            if (reason.empty() && verdict.at("is_better").get<bool>()) {
                subject.code = hash_of(compiler.object(variant, usual.named(variant)));
                reason = why_stale(verdict, subject);
            }
        }
        if (!reason.empty()) {
            complaints.push_back("The verdict on " + verdict.at("kernel").get<std::string>() + " " +
                                 verdict.at("dtype").get<std::string>() + " " + verdict.at("isa").get<std::string>() +
                                 " does not count: " + reason + ".");
        }
        return !reason.empty();
    };
    verdicts.erase(std::remove_if(verdicts.begin(), verdicts.end(), is_stale), verdicts.end());
    print_complaints(complaints);
    if (verdicts.empty()) {
        std::cerr << "halyard-tune: '" << options.database << "' holds no verdict that counts here\n";
        return exit_failure;
    }
    const json file = tuned_file(verdicts, setting);
    std::size_t changed = 0;
    for (const auto &[isa, entries] : file.at("schedules").items()) {
        changed += entries.size();
    }
    replace_file(output_file(options, machine), file.dump(4) + "\n");
    std::cerr << output_file(options, machine) << ": " << changed << " of " << verdicts.size()
              << " kernels get other parameters than usual\n";
    return 0;
}

int word_show(const Options &options, bool only_better) {
    const Setting setting = describe_setting(bench::describe_machine());
    const Database database(options.database);
    std::vector<std::string> complaints = database.complaints();
    const std::vector<json> verdicts = current_verdicts(database, setting, complaints);
    std::printf("%-8s %-26s %-5s %-28s %-28s %7s %7s %6s\n", "isa", "kernel", "type", "usual", "best", "gain", "noise",
                "tried");
    std::map<std::string, std::vector<Gain>> families;
    for (const json &record : verdicts) {
        const Verdict verdict = verdict_of(record);
        const KernelInfo *kernel = find_kernel(record.at("kernel"));
        families[kernel != nullptr ? kernel->family : "gone"].push_back(verdict.is_better ? verdict.gain : Gain());
        if (only_better && !verdict.is_better) {
            continue;
        }
        std::printf("%-8s %-26s %-5s %-28s %-28s %7s %6.1f%% %6d\n", record.value("isa", "").c_str(),
                    record.value("kernel", "").c_str(), record.value("dtype", "").c_str(),
                    text_of(verdict.usual).c_str(), verdict.is_better ? text_of(verdict.best).c_str() : "stays",
                    verdict.is_better ? number("%.3fx", verdict.gain.ratio).c_str() : "", 100 * verdict.noise,
                    verdict.tried);
    }
    std::vector<Gain> all;
    for (const auto &[family, gains] : families) {
        all.insert(all.end(), gains.begin(), gains.end());
        std::printf("%s: geometric mean of the gains %.3fx over %zu kernels\n", family.c_str(), mean_gain(gains).ratio,
                    gains.size());
    }
    std::printf("all: %.3fx over %zu kernels\n", mean_gain(all).ratio, all.size());
    print_complaints(complaints);
    return 0;
}

TuneOptions tune_options(const Options &options, const bench::Machine &machine) {
    TuneOptions tuning;
    tuning.shapes = options.shapes;
    tuning.rigor = rigor_named(options.rigor);
    tuning.threads = options.threads;
    tuning.seed = options.seed;
    tuning.cold_set = machine.cold_set();
    tuning.l1 = static_cast<std::int64_t>(machine.l1);
    tuning.l2 = static_cast<std::int64_t>(machine.l2);
    return tuning;
}

/** "default", "best" or "vectors=4,rows=1" as a choice of the variant. */
Choice choice_named(const std::string &text, const Variant &variant, const UsualParameters &usual,
                    const std::optional<Verdict> &known) {
    Choice choice = usual.complete(variant);
    if (text == "default") {
        return choice;
    }
    if (text == "best") {
        if (!known) {
            throw std::invalid_argument("the database has no verdict on " + variant.name());
        }
        return known->best;
    }
    const Space &space = *variant.space();
    for (const std::string &word : words_of(text)) {
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
            throw std::invalid_argument("'" + word + "': " + variant.kernel->name + " has the parameters " +
                                        join(names));
        }
        if (std::find(values.begin(), values.end(), value) == values.end()) {
            throw std::invalid_argument("'" + word + "': the legal values are " + join(values));
        }
        choice[name] = std::stoi(value);
    }
    return choice;
}

int word_compare(const Options &options) {
    const bench::Machine machine = bench::describe_machine();
    const Setting setting = describe_setting(machine);
    const UsualParameters usual(options.tuned_directory + "/x86-64.json");
    const TuneOptions tuning = tune_options(options, machine);
    Workshop workshop(usual, tuning);
    Database database(options.database);
    std::mt19937 random(options.seed);
    const std::vector<Variant> variants = chosen_variants(options);
    if (options.kernels.empty() || variants.empty()) {
        throw std::invalid_argument("compare wants a --kernel that has parameters");
    }
    for (const Variant &variant : variants) {
        const auto workloads =
            workshop.finder.workloads(variant, shapes_named(options.shapes, tuning.rigor.large_sets));
        if (workloads.empty()) {
            std::printf("%s: no call of the library reaches it on these shapes\n", variant.name().c_str());
            continue;
        }
        const auto known = known_verdict(database, setting, workshop.subject(variant, workloads), rigors().front());
        const Choice a = choice_named(options.first, variant, usual, known),
                     b = choice_named(options.second, variant, usual, known);
        KernelArena arena(
            workshop, variant, workloads, database, setting, random, [] { return interrupted != 0; },
            [](const std::string &) {});
        const auto result = arena.duel(a, b, tuning.rigor.last);
        if (!result) {
            return exit_interrupted;
        }
        std::printf("%s: B (%s) is %.3fx as fast as A (%s), noise %.1f %%: %s\n", variant.name().c_str(),
                    text_of(b).c_str(), result->gain.ratio, text_of(a).c_str(), 100 * result->noise,
                    result->winner > 0   ? "B is faster"
                    : result->winner < 0 ? "A is faster"
                                         : "no winner");
    }
    return 0;
}

/** The schedules that Halide's autoschedulers make of the same algorithms. */
int word_baseline(const Options &options) {
    const bench::Machine machine = bench::describe_machine();
    const Setting setting = describe_setting(machine);
    const UsualParameters usual(options.tuned_directory + "/x86-64.json");
    const TuneOptions tuning = tune_options(options, machine);
    Workshop workshop(usual, tuning);
    Database database(options.database);
    database.open_for_append();
    std::mt19937 random(options.seed);
    std::printf("%-50s %12s", "call", "ours, us");
    for (const std::string &scheduler : autoschedulers()) {
        std::printf(" %16s", scheduler.c_str());
    }
    std::printf("\n");
    for (const Variant &variant : chosen_variants(options)) {
        const auto workloads = workshop.finder.workloads(variant, shapes_named(options.shapes, false));
        if (workloads.empty()) {
            continue;
        }
        KernelArena arena(
            workshop, variant, {workloads.front()}, database, setting, random, [] { return interrupted != 0; },
            [](const std::string &) {});
        const auto extents = arena.extents();
        std::string ours = "-", cells, reasons;
        for (const std::string &scheduler : autoschedulers()) {
            const auto race = arena.race(
                scheduler, [&] { return workshop.compiler.autoscheduled(variant, scheduler, extents); },
                tuning.rigor.last);
            if (race.failure.empty()) {
                ours = number("%.1f", race.usual_seconds[0] * 1e6);
            } else {
                reasons += "  " + scheduler + ": " + race.failure.substr(0, race.failure.find('\n')) + "\n";
            }
            const std::string cell = race.failure.empty() ? number("%.2fx the time", 1 / race.gains[0].ratio) : "-";
            cells += " " + std::string(cell.size() < 16 ? 16 - cell.size() : 0, ' ') + cell;
        }
        std::printf("%-50s %12s%s\n%s", workloads.front().name().c_str(), ours.c_str(), cells.c_str(), reasons.c_str());
        std::fflush(stdout);
        if (interrupted != 0) {
            return exit_interrupted;
        }
    }
    return 0;
}

int word_object(const Options &options) {
    const std::vector<Variant> variants = chosen_variants(options);
    if (options.kernels.empty() || variants.size() != 1 || options.output.empty()) {
        throw std::invalid_argument("object wants one --kernel, --dtype and --isa, and an --output");
    }
    const UsualParameters usual(options.tuned_directory + "/x86-64.json");
    Compiler compiler;
    replace_file(options.output,
                 compiler.object(variants[0], choice_named(options.first, variants[0], usual, std::nullopt)));
    return 0;
}

/** Finds the works of each variant, and drops those that nothing can be done for. */
std::vector<std::pair<Variant, std::vector<Workload>>>
plan(const Options &options, Workshop &workshop, const UsualParameters &usual, std::vector<std::string> &left_out) {
    const std::vector<Shape> shapes = shapes_named(options.shapes, workshop.options.rigor.large_sets);
    std::vector<std::pair<Variant, std::vector<Workload>>> jobs;
    for (const Variant &variant : chosen_variants(options)) {
        const auto circumstances = variant.circumstances(workshop.options.l1, workshop.options.l2);
        if (worthy_choices(*variant.space(), circumstances, usual.complete(variant)).empty()) {
            left_out.push_back(variant.name() + ": there is nothing to choose");
            continue;
        }
        std::vector<Workload> workloads = workshop.finder.workloads(variant, shapes);
        if (workloads.empty()) {
            left_out.push_back(variant.name() + ": no call of the library reaches it on these shapes");
            continue;
        }
        jobs.emplace_back(variant, std::move(workloads));
    }
    return jobs;
}

int list(const Options &options) {
    std::printf("%-26s %-12s %s\n", "kernel", "family", "parameters and their values");
    for (const KernelInfo *kernel : chosen_kernels(options.kernels)) {
        std::string text = "none";
        if (const Space *space = Space::of(kernel->family)) {
            text.clear();
            for (const schedules::Tunable &parameter : space->parameters) {
                std::vector<std::string> values;
                for (const int value : parameter.values) {
                    values.push_back(std::to_string(value));
                }
                text += (text.empty() ? "" : "; ") + parameter.name + " " + join(values);
            }
        }
        std::printf("%-26s %-12s %s\n", kernel->name.c_str(), kernel->family.c_str(), text.c_str());
    }
    return 0;
}

int tune(const Options &options) {
    if (options.list) {
        return list(options);
    }
    const double budget = seconds_of(options.budget);
    const bench::Machine machine = bench::describe_machine();
    const Setting setting = describe_setting(machine);
    const UsualParameters usual(options.tuned_directory + "/x86-64.json");
    const TuneOptions tuning = tune_options(options, machine);
    Workshop workshop(usual, tuning);
    std::vector<std::string> left_out;
    const auto jobs = plan(options, workshop, usual, left_out);
    if (options.dry_run) {
        for (const auto &[variant, workloads] : jobs) {
            const auto circumstances = variant.circumstances(tuning.l1, tuning.l2);
            std::printf("%s: %zu choices beside %s, in", variant.name().c_str(),
                        worthy_choices(*variant.space(), circumstances, usual.complete(variant)).size(),
                        text_of(usual.complete(variant)).c_str());
            for (const Workload &workload : workloads) {
                std::printf(" %s", workload.name().c_str());
            }
            std::printf("\n");
        }
        for (const std::string &reason : left_out) {
            std::printf("left out: %s\n", reason.c_str());
        }
        return 0;
    }
    if (jobs.empty()) {
        print_complaints(left_out);
        std::cerr << "halyard-tune: nothing to tune\n";
        return exit_failure;
    }

    Database database(options.database);
    print_complaints(database.complaints());
    database.open_for_append();
    std::signal(SIGINT, [](int) { interrupted = 1; });
    std::signal(SIGTERM, [](int) { interrupted = 1; });

    Progress progress;
    const Clock::time_point begin = Clock::now();
    const auto elapsed = [begin] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
    const auto stop = [&] { return interrupted != 0 || elapsed() > budget; };
    std::size_t done = 0, known = 0, candidates = 0;
    double busy = 0;  // seconds of verdicts that were not known
    std::vector<Gain> gains;
    std::string best = "none yet";
    double best_ratio = 1;
    bool failed = false;

    const auto time_left = [&] {
        const std::size_t searched = done - known;
        const double rest =
            searched == 0 ? budget : busy / static_cast<double>(searched) * static_cast<double>(jobs.size() - done);
        return readable(std::max(0.0, std::min(rest, budget - elapsed())));
    };
    const auto report = [&](const Variant &variant, const std::string &what) {
        progress.show("[" + std::to_string(done + 1) + "/" + std::to_string(jobs.size()) + ", " + time_left() +
                      " left, best " + best + "] " + variant.name() + ": " + what);
    };

    std::seed_seq seed{options.seed};
    std::mt19937 random(seed);
    for (const auto &[variant, workloads] : jobs) {
        if (stop()) {
            break;
        }
        try {
            report(variant, "looking it up");
            const Subject subject = workshop.subject(variant, workloads);
            std::optional<Verdict> verdict;
            if (!options.again) {
                verdict = known_verdict(database, setting, subject, tuning.rigor);
            }
            if (verdict) {
                known++;
            } else {
                const double before = elapsed();
                KernelArena arena(workshop, variant, workloads, database, setting, random, stop,
                                  [&, &job = variant](const std::string &what) { report(job, what); });
                if (done == known) {
                    // The first time, how much equal code differs here and now.
                    const auto noise = arena.duel(usual.complete(variant), usual.complete(variant), tuning.rigor.last);
                    if (noise) {
                        progress.say("noise: the same code twice differs by " + number("%.1f %%", 100 * noise->noise) +
                                     " (" + variant.name() +
                                     "); a winner must gain more than 2 % and three times that");
                    }
                }
                const Outcome outcome = search(*variant.space(), variant.circumstances(tuning.l1, tuning.l2),
                                               usual.complete(variant), tuning.rigor, random, arena);
                if (!outcome.is_decided) {
                    break;
                }
                verdict = verdict_of(outcome, usual.complete(variant));
                busy += elapsed() - before;
                candidates += static_cast<std::size_t>(outcome.tried);
                arena.keep(*verdict, options.seed);
            }
            done++;
            gains.push_back(verdict->is_better ? verdict->gain : Gain());
            if (verdict->is_better && verdict->gain.ratio > best_ratio) {
                best_ratio = verdict->gain.ratio;
                best = variant.name() + " " + number("%.2fx", best_ratio);
            }
            progress.say("[" + std::to_string(done) + "/" + std::to_string(jobs.size()) + ", " + time_left() +
                         " left] " + summary_of(variant, *verdict));
        } catch (const DatabaseError &) {
            throw;
        } catch (const std::exception &error) {
            progress.say(variant.name() + ": " + error.what());
            failed = true;
            done++;
            known++;
        }
    }
    progress.say(std::to_string(done) + " of " + std::to_string(jobs.size()) + " kernels decided (" +
                 std::to_string(known) + " known before), " + std::to_string(candidates) + " candidates in " +
                 readable(elapsed()) +
                 (busy > 0 ? ", " + number("%.1f", static_cast<double>(candidates) / busy) + " per second" : "") +
                 "; geometric mean of the gains " + number("%.3fx", mean_gain(gains).ratio));
    if (done < jobs.size()) {
        progress.say(interrupted != 0 ? "interrupted; the same command goes on from here"
                                      : "the time is up; the same command goes on from here");
    }
    const int status = done > 0 ? word_export(options) : 0;
    return interrupted != 0 ? exit_interrupted : failed ? exit_failure : status;
}

}  // namespace
}  // namespace halyard::tune

int main(int argc, char **argv) {
    using namespace halyard::tune;
    Options options;
    CLI::App app{"Finds better parameters of the schedules for this machine and keeps them as data. Without a word it "
                 "tunes; interrupted, it goes on where it was when called again."};
    app.fallthrough();
    std::vector<std::string> rigor_names;
    for (const Rigor &rigor : rigors()) {
        rigor_names.push_back(rigor.name);
    }
    app.add_option("--kernel", options.kernels, "kernels or families with commas between them (default: all)");
    app.add_option("--isa", options.isas, "instruction sets of this machine, or all (default: the best)");
    app.add_option("--dtype", options.dtypes, "f32, f16, bf16, or all")->capture_default_str();
    app.add_option("--shapes", options.shapes,
                   "a set (" + shape_set_names() + "), or shapes like 64x4096,8x4096x11008,1024x8192/cold")
        ->capture_default_str();
    app.add_option("--budget", options.budget, "most time to spend: 90s, 10m, 2h")->capture_default_str();
    app.add_option("--rigor", options.rigor, "how long to measure and how much to try")
        ->check(CLI::IsMember(rigor_names))
        ->capture_default_str();
    app.add_option("--threads", options.threads, "threads of every call")
        ->check(CLI::Range(1, 256))
        ->capture_default_str();
    app.add_option("--seed", options.seed, "of random starts and orders")->capture_default_str();
    app.add_flag("--dry-run", options.dry_run, "say what would be tried, and stop");
    app.add_flag("--list", options.list, "list the kernels and what can be chosen for each, and stop");
    app.add_flag("--again", options.again, "search even where the database has a verdict");
    app.add_option("--database", options.database, "the file of records")->capture_default_str();
    app.add_option("--tuned-directory", options.tuned_directory, "where x86-64.json is, and the result goes");
    app.add_option("--output", options.output, "the file that the result goes to, named after the machine by default")
        ->take_last();
    CLI::App *show = app.add_subcommand("show", "print the verdicts");
    CLI::App *best = app.add_subcommand("best", "print the verdicts where something beat the usual parameters");
    CLI::App *compare = app.add_subcommand("compare", "time two choices for --kernel against each other");
    compare->add_option("A", options.first, "default, best, or name=value with commas between them")->required();
    compare->add_option("B", options.second, "the same")->required();
    CLI::App *object = app.add_subcommand("object", "write the object file that a choice for --kernel compiles to");
    object->add_option("CHOICE", options.first, "default, or name=value with commas between them")->required();
    CLI::App *baseline =
        app.add_subcommand("baseline", "time what Halide's autoschedulers make of the same algorithms");
    CLI::App *write = app.add_subcommand("export", "write the file of parameters that the build reads");
    app.require_subcommand(0, 1);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &error) {
        return app.exit(error) == 0 ? 0 : exit_usage;
    }
    try {
        return show->parsed()       ? word_show(options, false)
               : best->parsed()     ? word_show(options, true)
               : compare->parsed()  ? word_compare(options)
               : baseline->parsed() ? word_baseline(options)
               : object->parsed()   ? word_object(options)
               : write->parsed()    ? word_export(options)
                                    : tune(options);
    } catch (const std::invalid_argument &error) {
        std::cerr << "halyard-tune: " << error.what() << '\n';
        return exit_usage;
    } catch (const std::exception &error) {
        std::cerr << "halyard-tune: " << error.what() << '\n';
        return exit_failure;
    }
}
