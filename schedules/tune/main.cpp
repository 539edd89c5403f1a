// halyard-tune: finds better parameters of schedules and runtime for this machine (docs/tuning.md).
#include <CLI/CLI.hpp>
#include <iostream>
#include <set>
#include <stdexcept>

#include "commands.h"

volatile std::sig_atomic_t halyard::tune::interrupted = 0;

int main(int argc, char **argv) {
    using namespace halyard::tune;
    Options options;
    CLI::App app{
        "Finds better parameters of the schedules and the runtime for this machine and keeps them as data. Without "
        "a command it tunes; interrupted, it goes on where it was when called again."};
    app.fallthrough();
    std::set<std::string> efforts_named, dtypes, kernels = {"runtime"};
    for (const Effort &effort : efforts()) {
        efforts_named.insert(effort.name);
    }
    for (const Variant &variant : all_variants()) {
        kernels.insert({variant.kernel->name, variant.kernel->family});
        dtypes.insert(variant.dtype);
    }
    for (const SearchSpace &space : runtime_spaces()) {
        kernels.insert("runtime." + space.family);
    }
    const std::vector<std::string> isas = supported_isas();
    const auto add_list = [&app](const char *name, std::vector<std::string> &words, const auto &all, const char *help) {
        app.add_option(name, words, help)
            ->delimiter(',')
            ->allow_extra_args(false)
            ->check(CLI::IsMember(all) | CLI::IsMember({"all"}))
            ->capture_default_str();
    };
    add_list("--kernel", options.kernels, kernels, "kernels or families with commas between them, runtime among them");
    add_list("--isa", options.isas, isas, "instruction sets of this machine, or all");
    add_list("--dtype", options.dtypes, dtypes, "f32, f16, bf16, or all");
    app.add_option("--shapes", options.shapes, "rows and inputs, of products outputs too: 8x4096x11008, 1024x8192/cold")
        ->capture_default_str();
    app.add_option("--budget", options.budget, "most time to spend: 90s, 10m, 2h (default: 30m)")
        ->transform(CLI::AsNumberWithUnit(std::map<std::string, double>{{"s", 1}, {"m", 60}, {"h", 3600}}));
    app.add_option("--effort", options.effort, "how long to measure and how much to try")
        ->check(CLI::IsMember(efforts_named))
        ->capture_default_str();
    app.add_flag("--exhaustive", options.exhaustive,
                 "--effort exhaustive, for as long as it takes: every choice of every space");
    app.add_option("--threads", options.threads, "threads of every call of a kernel")
        ->check(CLI::Range(1, 256))
        ->capture_default_str();
    app.add_flag("--dry-run", options.dry_run, "say what would be tried, and stop");
    app.add_flag("--list", options.list, "list the kernels and what can be chosen for each, and stop");
    app.add_flag("--again", options.again, "search even where the database has a decision");
    app.add_option("--database", options.database, "the file of records")->capture_default_str();
    app.add_option("--output", options.output, "the file that the result goes to, named after the machine by default")
        ->take_last();
    CLI::App *show = app.add_subcommand("show", "print the decisions as a table in Markdown");
    CLI::App *compare = app.add_subcommand("compare", "time choices for --kernel against the default parameters");
    compare->add_option("CHOICE", options.choices, "default, or name=value with commas between them")->required();
    CLI::App *object = app.add_subcommand("object", "write the object file that a choice for --kernel compiles to");
    object->add_option("CHOICE", options.choices, "the same")->required()->expected(1);
    CLI::App *write = app.add_subcommand("export", "write the file of parameters that the build reads");
    app.require_subcommand(0, 1);
    try {
        app.parse(argc, argv);
        if (write->parsed()) {
            Session session(options);
            return command_export(session);
        }
        return show->parsed()      ? command_show(options)
               : compare->parsed() ? command_compare(options)
               : object->parsed()  ? command_object(options)
               : options.list      ? command_list(options)
                                   : command_tune(options);
    } catch (const CLI::ParseError &error) {
        return app.exit(error) == 0 ? 0 : exit_usage;
    } catch (const std::invalid_argument &error) {
        std::cerr << "halyard-tune: " << error.what() << '\n';
        return exit_usage;
    } catch (const std::exception &error) {
        std::cerr << "halyard-tune: " << error.what() << '\n';
        return exit_failure;
    }
}
