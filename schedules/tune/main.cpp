// halyard-tune: finds better parameters of schedules for this machine (docs/tuning.md).
#include <CLI/CLI.hpp>
#include <iostream>
#include <stdexcept>

#include "words.h"

volatile std::sig_atomic_t halyard::tune::interrupted = 0;

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
    app.add_option("--target", options.target, "of --list: x86-64, arm64 or cuda")->capture_default_str();
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
               : options.list       ? word_list(options)
                                    : word_tune(options);
    } catch (const std::invalid_argument &error) {
        std::cerr << "halyard-tune: " << error.what() << '\n';
        return exit_usage;
    } catch (const std::exception &error) {
        std::cerr << "halyard-tune: " << error.what() << '\n';
        return exit_failure;
    }
}
