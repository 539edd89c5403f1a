// halyard-bench: measures the machine's limits, then each kernel against them and against every peer that is present.
// It prints its progress and writes what it finds to a file, of which bench/report/report.py makes tables and pages.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <ctime>
#include <iostream>
#include <map>
#include <optional>
#include <regex>

#include "google_benchmark.h"
#include "operations/isas.h"
#include "plan.h"
#include "runner.h"
#include "timing/machine_limits.h"
#include "work_list.h"

namespace halyard::bench {
namespace {

struct Options {
    bool full = false, quick = false, list = false, list_peers = false;
    std::string filter, json_file, isa, work_list, model;
    std::string python = "python3";
    std::vector<std::string> peers{"all"};
    std::vector<std::string> peer_folders;
    std::vector<std::string> google_benchmark;  // those that begin with --benchmark_
    double row_limit = 120;
    int threads = 0, rounds = 0;

    std::string list_name() const {
        return !work_list.empty() ? work_list : full ? "full" : quick ? "quick" : "default";
    }
};

constexpr int exit_wrong_result = 1, exit_usage = 2, exit_interrupted = 130;

std::string utc_now() {
    const std::time_t now = std::time(nullptr);
    char text[32];
    std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", std::gmtime(&now));
    return text;
}

std::string compiler() {
#if defined(__clang__)
    return "clang " __clang_version__;
#else
    return "gcc " __VERSION__;
#endif
}

/** The instruction sets that this library holds and this machine runs, by name. */
std::map<std::string, halyard_isa> isas() {
    std::map<std::string, halyard_isa> names;
    for (const halyard_isa isa : operations::built_isas) {
        if (halyard_isa_supported(isa) != 0) {
            names[halyard_isa_name(isa)] = isa;
        }
    }
    return names;
}

/** The files of the peers that the command names; a name that is none is refused, with those there are. */
std::map<std::string, std::string> wanted_peers(const Options &options) {
    const std::map<std::string, std::string> known = known_peers(options.peer_folders);
    std::map<std::string, std::string> wanted;
    for (const std::string &name : options.peers) {
        if (name == "all") {
            wanted = known;
        } else if (known.count(name) != 0) {
            wanted[name] = known.at(name);
        } else if (name != "none") {
            std::string list;
            for (const auto &each : known) {
                list += (list.empty() ? "" : ", ") + each.first;
            }
            throw UsageError("'" + name + "' is no peer; there are: " + list);
        }
    }
    return wanted;
}

/** Makes the peers that are here, and tells `run` about all. */
std::vector<std::unique_ptr<Peer>> make_peers(const std::map<std::string, std::string> &wanted,
                                              const PeerOptions &peer_options, Run &run) {
    std::vector<std::unique_ptr<Peer>> peers;
    for (const auto &[name, script] : wanted) {
        auto peer = std::make_unique<Peer>(name, script, peer_options);
        const std::string missing = peer->missing();
        run.peers.push_back({name, missing, missing.empty() ? peer->about() : nlohmann::json::object()});
        if (missing.empty()) {
            peers.push_back(std::move(peer));
        }
    }
    return peers;
}

ResultFile open_result(const std::string &name) {
    try {
        return ResultFile(name);
    } catch (const std::runtime_error &error) {
        throw UsageError(error.what());
    }
}

std::vector<CaseId> chosen_rows(const Options &options, const Machine &machine, int threads) {
    const std::regex filter(options.filter);
    std::vector<CaseId> chosen;
    int not_built = 0;
    const std::vector<CaseId> all = options.model.empty()
                                        ? read_work_list(options.list_name(), HALYARD_BENCH_SHAPES_DIR, threads)
                                        : rows_of_model_file(options.model, threads);
    for (const CaseId &row : all) {
        if (!is_built(row)) {
            not_built++;
        } else if (std::regex_search(row.name(), filter)) {
            const std::string reason = too_large(row, machine);
            if (reason.empty()) {
                chosen.push_back(row);
            } else {
                std::cerr << "left out: " << row.name() << ": " << reason << '\n';
            }
        }
    }
    if (not_built > 0) {
        std::cerr << "left out: " << not_built << " rows of what the library was built without\n";
    }
    if (chosen.empty()) {
        throw UsageError("no row matches '" + options.filter + "'; --list shows the names");
    }
    return chosen;
}

/** "3 min left", from the rows so far. */
std::string time_left(std::chrono::steady_clock::time_point start, std::size_t done, std::size_t all) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double left = done == 0 ? 0 : seconds / static_cast<double>(done) * static_cast<double>(all - done);
    return done == 0   ? ""
           : left < 90 ? ", about " + std::to_string(static_cast<int>(left) + 1) + " s left"
                       : ", about " + std::to_string(static_cast<int>(left / 60) + 1) + " min left";
}

/** The instruction set that the library chooses under the cap. */
halyard_isa chosen_isa(const Options &options) {
    halyard_context *made = nullptr;
    require(halyard_context_create(&made));
    const std::unique_ptr<halyard_context, void (*)(halyard_context *)> context(made, halyard_context_destroy);
    if (!options.isa.empty()) {
        require(halyard_context_set_max_isa(made, isas().at(options.isa)));
    }
    return halyard_context_isa(made);
}

PeerOptions peer_options_of(const Options &options, const Machine &machine) {
    return {options.python, machine.cold_set(), chosen_isa(options), options.row_limit};
}

/** Prints and writes each row when it is known. */
void measure_rows(Runner &runner, const std::vector<CaseId> &rows, ResultFile &file, Run &run) {
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < rows.size() && interrupted == 0; i++) {
        std::cerr << "[" << i + 1 << "/" << rows.size() << time_left(start, i, rows.size()) << "] " << rows[i].name()
                  << "  " << std::flush;
        run.rows.push_back(runner.measure_row(rows[i]));
        std::cerr << summary_of(run.rows.back()) << std::endl;
        file.write(to_json(run.rows.back()));
    }
}

/** Multiply-adds of a row that has one kind of them: their rate where the row takes `seconds`. */
std::optional<FlopsLimit> rate_of(const RowResult &row, double seconds) {
    if (row.rounds == 0 || !row.id.has_roofline()) {
        return std::nullopt;
    }
    const halyard_isa isa = isas().at(row.isa);
    const double in_bytes = row.id.int8_flops();
    if (in_bytes == 0) {
        return FlopsLimit{isa_of_products(isa, row.id.dtype), row.id.threads, row.id.flops() / seconds};
    }
    if (in_bytes == row.id.flops()) {
        return FlopsLimit{isa_of_products(isa, Dtype::f32), row.id.threads,
                          in_bytes * byte_products(isa, row.id.kernel->code_bits()) / seconds, true};
    }
    return std::nullopt;
}

/** Peaks are measured again in the turns of rows: the best counts. What rows themselves reach contradicts a lower peak. */
void check_peaks(Run &run) {
    std::vector<FlopsLimit> reached;
    for (const RowResult &row : run.rows) {
        if (const auto again = rate_of(row, row.multiply_add_seconds.least)) {
            for (FlopsLimit &limit : run.limits.flops) {
                if (limit.isa == again->isa && limit.int8 == again->int8 && limit.threads == again->threads) {
                    limit.flops = std::max(limit.flops, again->flops);
                }
            }
            reached.push_back(*rate_of(row, row.seconds.least));
        }
    }
    repeat_contradicted(run.limits, reached, run.machine, [] { return interrupted != 0; });
}

/** Checks an option. */
std::string file_name(const std::string &name) {
    return name.empty() ? "it takes the name of a file" : "";
}

int run_benchmark(const Options &options) {
    Run run;
    run.work_list = options.list_name();
    run.date = utc_now();
    run.machine = describe_machine();
    run.threads = options.threads != 0 ? options.threads : run.machine.processors;
    run.library_version = halyard_version();
    run.compiler = compiler();

    const std::map<std::string, std::string> wanted = wanted_peers(options);
    const std::vector<CaseId> rows = chosen_rows(options, run.machine, run.threads);
    if (options.list) {
        for (const CaseId &row : rows) {
            std::cout << row.name() << '\n';
        }
        return 0;
    }

    ResultFile file = open_result(options.json_file);  // nothing is measured for hours to find no place for it
    std::signal(SIGINT, [](int) { interrupted = 1; });
    std::signal(SIGTERM, [](int) { interrupted = 1; });
    const PeerOptions peer_options = peer_options_of(options, run.machine);
    run.isa = halyard_isa_name(peer_options.isa);
    std::cerr << "starting the peers" << std::endl;
    const std::vector<std::unique_ptr<Peer>> peers = make_peers(wanted, peer_options, run);
    BusyElsewhere busy_elsewhere(run.machine.processors);
    const bool is_terminal = isatty(STDERR_FILENO) != 0;
    std::cerr << "measuring the limits of the machine" << std::flush;
    busy_elsewhere.begin({});
    run.limits = measure_limits(
        run.machine, peer_options.isa, run.threads,
        [is_terminal](const std::string &what) {
            if (is_terminal) {
                std::cerr << "\r\x1b[Kmeasuring the limits of the machine: " << what << std::flush;
            }
        },
        [] { return interrupted != 0; });
    busy_elsewhere.end();
    std::cerr << (is_terminal ? "\r\x1b[Kmeasured the limits of the machine" : "") << std::endl;
    run.loop_overhead = loop_overhead();

    file.write(header_of(run));

    Runner runner({options.rounds, !options.quick}, peer_options, peers, busy_elsewhere);
    measure_rows(runner, rows, file, run);
    check_peaks(run);
    run.interrupted = interrupted != 0;
    run.busy_elsewhere = busy_elsewhere.share();
    file.write(end_of(run));
    const bool all_right = std::all_of(run.rows.begin(), run.rows.end(),
                                       [](const RowResult &row) { return !row.is_wrong && row.failure.empty(); });
    return run.interrupted ? exit_interrupted : all_right ? 0 : exit_wrong_result;
}

/** The rows of the library alone, as Google Benchmark's options say. */
int run_as_google_benchmark(const Options &options) {
    if (!options.json_file.empty()) {
        throw UsageError("--json and --benchmark_ options do not go together; Google Benchmark has --benchmark_out");
    }
    const Machine machine = describe_machine();
    const std::vector<CaseId> rows =
        chosen_rows(options, machine, options.threads != 0 ? options.threads : machine.processors);
    return run_google_benchmark(rows, options.google_benchmark, machine.cold_set(), chosen_isa(options))
               ? 0
               : exit_wrong_result;
}

/** Which peers there are, and why the others are not. */
int list_peers(const Options &options) {
    Run run;
    make_peers(wanted_peers(options), peer_options_of(options, describe_machine()), run);
    for (const Run::PeerInfo &peer : run.peers) {
        std::cout << peer.name << "  "
                  << (peer.missing.empty() ? peer.about.value("version", "") : "MISSING: " + peer.missing) << '\n';
    }
    return 0;
}

}  // namespace
}  // namespace halyard::bench

int main(int argc, char **argv) {
    using namespace halyard::bench;
    Options options;
    CLI::App app{"Measures every kernel of halyard against the limits of this machine and against its peers."};
    auto *quick_flag = app.add_flag("--quick", options.quick, "the rows that say most: under 2 minutes");
    auto *full_flag =
        app.add_flag("--full", options.full, "every kernel, shape and type: many hours, so give it a filter")
            ->excludes(quick_flag);
    auto *shapes =
        app.add_option(
               "--shapes", options.work_list,
               "the work list, by name or path (default, which takes 10 minutes, and half an hour beside all peers): " +
                   work_lists_in(HALYARD_BENCH_SHAPES_DIR))
            ->excludes(quick_flag)
            ->excludes(full_flag);
    app.add_option(
           "--model", options.model,
           "instead of a list, a model in a GGUF file: prompts of 128 and 512 tokens and a decode, beside peers that "
           "open the same file")
        ->check(CLI::ExistingFile)
        ->excludes(quick_flag)
        ->excludes(full_flag)
        ->excludes(shapes);
    app.add_option("--filter", options.filter, "only rows whose name matches this regular expression");
    app.add_flag("--list", options.list, "print the names of the rows and stop");
    app.add_flag("--list-peers", options.list_peers, "print the peers that are here, and why others are not, and stop");
    app.add_option("--json", options.json_file,
                   "write the results to this file, a line each (bench/report/report.py shows them)")
        ->take_last()
        ->check(file_name);
    app.add_option("--threads", options.threads, "threads of ours and of the peers (default: all processors)")
        ->check(CLI::Range(1, 256));
    app.add_option("--isa", options.isa, "use no instruction set above this one")->check(CLI::IsMember(isas()));
    app.add_option("--peers", options.peers, "all (those that are there), none, or names with commas between them")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("--more-peers", options.peer_folders, "a folder with more peers, each a file NAME_peer.py")
        ->check(CLI::ExistingDirectory);
    app.add_option("--peer-limit", options.row_limit, "seconds that a peer gets for one row before it is stopped")
        ->check(CLI::Range(0.1, 86400.0))
        ->check([](const std::string &text) {
            return text.find_first_of("nN") == std::string::npos ? "" : "it is no number";
        })
        ->capture_default_str();
    app.add_option("--python", options.python, "the Python interpreter of the peers in Python")->capture_default_str();
    app.add_option("--rounds", options.rounds, "samples of each contender per row (default: 7 hot, 5 cold)")
        ->check(CLI::Range(1, 1000));
    app.footer(
        "Options that begin with --benchmark_ (list_tests, filter, repetitions, out, format=json|csv|console, ...)\n"
        "run the rows of the library alone with Google Benchmark, whose own they are.");
    std::vector<char *> arguments;
    for (int i = 0; i < argc; i++) {
        if (std::strncmp(argv[i], "--benchmark_", 12) == 0) {
            options.google_benchmark.emplace_back(argv[i]);
        } else {
            arguments.push_back(argv[i]);
        }
    }
    try {
        app.parse(static_cast<int>(arguments.size()), arguments.data());
        options.peer_folders.push_back(HALYARD_BENCH_PEERS_DIR);
        return options.list_peers                  ? list_peers(options)
               : !options.google_benchmark.empty() ? run_as_google_benchmark(options)
                                                   : run_benchmark(options);
    } catch (const CLI::CallForHelp &help) {
        return app.exit(help);
    } catch (const CLI::ParseError &error) {
        std::cerr << "halyard-bench: " << error.what() << " (--help shows the options)\n";
        return exit_usage;
    } catch (const std::regex_error &) {
        std::cerr << "halyard-bench: '" << options.filter << "' is no regular expression\n";
        return exit_usage;
    } catch (const UsageError &error) {
        std::cerr << "halyard-bench: " << error.what() << "\n";
        return exit_usage;
    } catch (const std::exception &error) {
        std::cerr << "halyard-bench: " << error.what() << "\n";
        return 1;
    }
}
