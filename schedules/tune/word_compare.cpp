// The words that look at single choices: compare and object; and baseline, at what Halide's autoschedulers choose.
#include <cstdio>
#include <random>
#include <stdexcept>
#include <utility>

#include "arena.h"
#include "bench/replace_file.h"
#include "schedules/autoschedule.h"
#include "setting.h"
#include "text.h"
#include "words.h"

namespace halyard::tune {
namespace {

/** What single choices are measured with. */
struct Tools {
    explicit Tools(const Options &options)
        : machine(bench::describe_machine()), setting(describe_setting(machine)), usual(usual_parameters(options)),
          tuning(tune_options(options, machine)), workshop(usual, tuning), database(options.database),
          random(options.seed) {}

    KernelArena arena(const Variant &variant, std::vector<Workload> workloads) {
        return KernelArena(
            workshop, variant, std::move(workloads), database, setting, random, [] { return interrupted != 0; },
            [](const std::string &) {});
    }

    const bench::Machine machine;
    const Setting setting;
    const UsualParameters usual;
    const TuneOptions tuning;
    Workshop workshop;
    Database database;
    std::mt19937 random;
};

}  // namespace

int word_compare(const Options &options) {
    Tools tools(options);
    const std::vector<Variant> variants = chosen_variants(options);
    if (options.kernels.empty() || variants.empty()) {
        throw std::invalid_argument("compare wants a --kernel that has parameters");
    }
    for (const Variant &variant : variants) {
        const auto workloads =
            tools.workshop.finder.workloads(variant, shapes_named(options.shapes, tools.tuning.rigor.large_sets));
        if (workloads.empty()) {
            std::printf("%s: no call of the library reaches it on these shapes\n", variant.name().c_str());
            continue;
        }
        const auto known =
            known_verdict(tools.database, tools.setting, tools.workshop.subject(variant, workloads), rigors().front());
        const Choice a = choice_named(options.first, variant, tools.usual, known),
                     b = choice_named(options.second, variant, tools.usual, known);
        KernelArena arena = tools.arena(variant, workloads);
        const auto result = arena.duel(a, b, tools.tuning.rigor.last);
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
    Tools tools(options);
    tools.database.open_for_append();
    std::printf("%-50s %12s", "call", "ours, us");
    for (const std::string &scheduler : schedules::autoschedulers()) {
        std::printf(" %16s", scheduler.c_str());
    }
    std::printf("\n");
    for (const Variant &variant : chosen_variants(options)) {
        const auto workloads = tools.workshop.finder.workloads(variant, shapes_named(options.shapes, false));
        if (workloads.empty()) {
            continue;
        }
        KernelArena arena = tools.arena(variant, {workloads.front()});
        const auto estimates = arena.arguments();
        std::string ours = "-", cells, reasons;
        for (const std::string &scheduler : schedules::autoschedulers()) {
            const auto race = arena.race(
                scheduler, [&] { return tools.workshop.compiler.autoscheduled(variant, scheduler, estimates); },
                tools.tuning.rigor.last);
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
    const UsualParameters usual = usual_parameters(options);
    Compiler compiler;
    bench::replace_file(options.output,
                        compiler.object(variants[0], choice_named(options.first, variants[0], usual, std::nullopt)));
    return 0;
}

}  // namespace halyard::tune
