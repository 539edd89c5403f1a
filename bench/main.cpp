// halyard-bench: measures the machine's limits, then each kernel against them and against every peer that is present.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <ctime>
#include <fstream>
#include <iostream>
#include <regex>
#include <sstream>

#include "limits.h"
#include "measure.h"
#include "peers/peer.h"
#include "plan.h"
#include "result.h"
#include "row_limits.h"
#include "support/isas.h"

namespace halyard::bench {
namespace {

volatile std::sig_atomic_t interrupted = 0;

struct Options {
    bool full = false, list = false;
    std::string filter, json_file, isa;
    std::string python = "python3";
    std::string peers = "all";
    int threads = 0, rounds = 0;
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

/** Those that this library holds. */
std::vector<std::string> isa_names() {
    std::vector<std::string> names;
    for (int isa = tests::weakest_isa; isa <= tests::strongest_isa; isa++) {
        names.emplace_back(halyard_isa_name(static_cast<halyard_isa>(isa)));
    }
    return names;
}

halyard_isa isa_cap(const std::string &name) {
    for (int isa = tests::weakest_isa; isa <= tests::strongest_isa; isa++) {
        if (name == halyard_isa_name(static_cast<halyard_isa>(isa))) {
            return static_cast<halyard_isa>(isa);
        }
    }
    return tests::strongest_isa;
}

std::vector<double> ratios(const std::vector<double> &over, const std::vector<double> &under) {
    std::vector<double> values;
    for (std::size_t i = 0; i < std::min(over.size(), under.size()); i++) {
        values.push_back(over[i] / under[i]);
    }
    return values;
}

/** The greater of each two. */
std::vector<double> greater(const std::vector<double> &a, const std::vector<double> &b) {
    std::vector<double> values;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); i++) {
        values.push_back(std::max(a[i], b[i]));
    }
    return values;
}

/** Watches how much of the machine others use while this program and its peers measure. */
class BusyElsewhere {
public:
    BusyElsewhere(const Machine &of, const std::vector<pid_t> &own)
        : processors(of.processors), processes(own), start(Clock::now()), elsewhere_before(elsewhere()) {}
    double share() const {
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        return std::max(0.0, (elsewhere() - elsewhere_before) / (seconds * processors));
    }

private:
    using Clock = std::chrono::steady_clock;
    double elsewhere() const {
        const ProcessorTime all = processor_time();
        return all.busy + all.stolen - processor_seconds_of(processes);
    }
    int processors;
    std::vector<pid_t> processes;
    Clock::time_point start;
    double elsewhere_before;
};

/** Measures one row after another with everything that stays the same between them. */
class Runner {
public:
    Runner(const Options &given, const Run &result, const PeerOptions &peer_choices,
           const std::vector<std::unique_ptr<Peer>> &present, const std::vector<pid_t> &peer_processes)
        : options(given), run(result), peer_options(peer_choices), peers(present), processes(peer_processes) {}

    RowResult measure_row(const WorkId &id) {
        RowResult row{};
        row.id = id;
        try {
            measure_into(row);
        } catch (const std::exception &error) {
            row.failure = error.what();
        }
        return row;
    }

private:
    void measure_into(RowResult &row) {
        const WorkId &id = row.id;
        Work work(id, peer_options.cold_set, peer_options.isa);
        row.isa = halyard_isa_name(halyard_context_isa(work.context.get()));
        row.tolerance = work.tolerance();
        work.spoil_outputs();
        work.call(0);
        row.error = work.worst_error();
        row.is_wrong = !(row.error <= row.tolerance);
        if (row.is_wrong) {
            return;
        }

        if (team == nullptr || team->size() != id.threads) {
            team = std::make_unique<Team>(id.threads);
        }
        const auto call = [&work](std::size_t set) { work.id.kernel->call(work, work.sets[set]); };
        Local ours(call, work.sets.size()), ours_again(call, work.sets.size());
        const auto limits = limits_of(work, streams_of(halyard_context_isa(work.context.get())), *team);
        Own own{&ours, &ours_again, {}};
        for (const auto &limit : limits) {
            own.limits.push_back(limit.get());
        }
        // Two models in memory are enough: their peers come one by one, each with rounds of its own.
        const std::size_t at_once = id.is_model() ? 1 : std::max<std::size_t>(peers.size(), 1);
        std::size_t next = 0;
        do {
            next = measure_beside(row, work, own, next, at_once);
        } while (next < peers.size() && interrupted == 0);
    }

    /** Our contenders for a row. */
    struct Own {
        Contender *ours, *again;
        std::vector<Contender *> limits;
    };

    /** Prepares the peers from `first` on until `most` are ready, and measures them with ours; returns the next one.
     * The first time the row's own results are taken too. */
    std::size_t measure_beside(RowResult &row, Work &work, const Own &own, std::size_t first, std::size_t most) {
        std::vector<Contender *> contenders{own.ours};
        if (first == 0) {
            contenders.insert(contenders.end(), own.limits.begin(), own.limits.end());
        }
        std::size_t place = contenders.size(), next = first;
        std::vector<std::unique_ptr<PeerContender>> sides;
        for (; next < peers.size() && sides.size() < most; next++) {
            row.peers.push_back(prepare_peer(*peers[next], work, sides));
        }
        if (first > 0 && sides.empty()) {
            return next;
        }
        for (const auto &side : sides) {
            contenders.push_back(&side->contender());
        }
        contenders.push_back(own.again);
        const Plan plan{rounds_of(row.id), row.id.cold ? 20e-3 : 6e-3, processes, [] { return interrupted != 0; }};
        const std::vector<std::vector<double>> seconds = measure(contenders, plan);
        if (first == 0) {
            take_ours(row, work, own.limits.size(), seconds);
        }
        for (std::size_t i = first; i < next; i++) {
            PeerResult &peer = row.peers[i];
            if (peer.reason.empty() && !peer.is_wrong) {
                peer.reason = contenders[place]->failure;
                peer.seconds = estimate(seconds[place]);
                peer.ratio = estimate(ratios(seconds[place], seconds[0]));
                place++;
            }
        }
        return next;
    }

    int rounds_of(const WorkId &id) const {
        constexpr double long_call = 2e11;  // multiplications and additions: half a second or more
        return options.rounds != 0 ? options.rounds : id.has_heads() && id.flops() > long_call ? 3 : id.cold ? 5 : 7;
    }

    /** seconds: of ours, of `limit_count` limits, of peers, of ours again. */
    static void take_ours(RowResult &row, const Work &work, std::size_t limit_count,
                          const std::vector<std::vector<double>> &seconds) {
        row.rounds = static_cast<int>(seconds.back().size());
        row.seconds = estimate(seconds.front());
        // The slowest of what a layer cannot do without; the faster of two copies.
        std::vector<double> limit = seconds[1];
        for (std::size_t i = 2; i <= limit_count; i++) {
            if (row.id.has_roofline()) {
                limit = greater(limit, seconds[i]);
            } else if (estimate(seconds[i]).median < estimate(limit).median) {
                limit = seconds[i];
                row.limit_stores = Stores::nontemporal;
            }
        }
        row.limit_seconds = estimate(limit);
        row.fraction = estimate(ratios(limit, seconds[0]));
        if (row.id.has_roofline()) {
            row.read_seconds = estimate(seconds[1]);
            row.multiply_add_seconds = estimate(seconds[2]);
            row.sets = work.sets.size();
            row.resident = work.resident;
        }
        row.again = estimate(ratios(seconds.back(), seconds.front()));
    }

    PeerResult prepare_peer(Peer &peer, Work &work, std::vector<std::unique_ptr<PeerContender>> &sides) {
        PeerResult result;
        result.peer = peer.name();
        const bool chosen = options.full || !options.filter.empty() || has_bar(work.id, peer.name(), run.threads);
        if (peer.slow_to_prepare() && !chosen) {
            result.reason = "left out of the quick mode, where it would take most of the time";
            return result;
        }
        std::unique_ptr<PeerContender> side = peer.prepare(work, result.reason);
        if (side == nullptr) {
            return result;
        }
        result.error = side->error();
        result.is_wrong = !(result.error <= work.peer_tolerance());
        result.note = side->note;
        result.resident = side->resident;
        if (!result.is_wrong) {
            sides.push_back(std::move(side));
        }
        return result;
    }

    const Options &options;
    const Run &run;
    PeerOptions peer_options;
    const std::vector<std::unique_ptr<Peer>> &peers;
    const std::vector<pid_t> &processes;
    std::unique_ptr<Team> team;
};

/** Makes the peers that were asked for and are here, and tells `run` about all. */
std::vector<std::unique_ptr<Peer>> make_peers(const Options &options, const PeerOptions &peer_options, Run &run) {
    std::vector<std::unique_ptr<Peer>> peers;
    const std::string wanted = "," + options.peers + ",";
    for (const PeerRegistration &registered : registered_peers()) {
        Run::PeerInfo info{registered.name, "", ""};
        if (options.peers != "all" && wanted.find("," + std::string(registered.name) + ",") == std::string::npos) {
            continue;
        }
        if (std::unique_ptr<Peer> peer = registered.make(peer_options, info.missing)) {
            info.version = peer->version();
            peers.push_back(std::move(peer));
        }
        run.peers.push_back(info);
    }
    return peers;
}

/** For the command line: empty if the list of peers names only known ones. */
std::string known_peers(const std::string &list) {
    std::string names;
    for (const PeerRegistration &registered : registered_peers()) {
        names += (names.empty() ? "" : ", ") + std::string(registered.name);
    }
    std::istringstream words(list);
    for (std::string word; std::getline(words, word, ',');) {
        if (word != "all" && word != "none" && (", " + names + ",").find(", " + word + ",") == std::string::npos) {
            return "'" + word + "' is no peer of this build; there are: " + names;
        }
    }
    return {};
}

void write_json(const Run &run, const std::string &file) {
    if (file.empty()) {
        return;
    }
    // Through a second file, so that there is a whole one at any moment.
    const std::string unfinished = file + ".part";
    {
        std::ofstream out(unfinished);
        out << to_json(run).dump(1) << '\n';
        if (!out) {
            throw std::runtime_error("cannot write '" + unfinished + "'");
        }
    }
    if (std::rename(unfinished.c_str(), file.c_str()) != 0) {
        throw std::runtime_error("cannot write '" + file + "'");
    }
}

std::vector<WorkId> chosen_rows(const Options &options, const Machine &machine, int threads) {
    std::vector<WorkId> rows = options.full ? full_rows(threads) : quick_rows(threads);
    const std::regex filter(options.filter);
    std::vector<std::string> names;
    std::vector<WorkId> chosen;
    for (const WorkId &row : rows) {
        const std::string name = row.name();
        if (std::regex_search(name, filter) && std::find(names.begin(), names.end(), name) == names.end()) {
            names.push_back(name);
            const std::string reason = too_large(row, machine);
            if (reason.empty()) {
                chosen.push_back(row);
            } else {
                std::cerr << "left out: " << name << ": " << reason << '\n';
            }
        }
    }
    return chosen;
}

int run_benchmark(const Options &options) {
    Run run;
    run.mode = options.full ? "full" : "quick";
    run.date = utc_now();
    run.machine = describe_machine();
    run.threads = options.threads != 0 ? options.threads : run.machine.processors;
    run.library_version = halyard_version();
    run.compiler = compiler();

    const std::vector<WorkId> rows = chosen_rows(options, run.machine, run.threads);
    if (rows.empty()) {
        std::cerr << "halyard-bench: no row matches '" << options.filter << "'; --list shows the names\n";
        return exit_usage;
    }
    if (options.list) {
        for (const WorkId &row : rows) {
            std::cout << row.name() << '\n';
        }
        return 0;
    }

    std::signal(SIGINT, [](int) { interrupted = 1; });
    std::signal(SIGTERM, [](int) { interrupted = 1; });
    halyard_isa isa = isa_cap(options.isa);
    {
        const Work probe(rows.front(), 0, isa);
        isa = halyard_context_isa(probe.context.get());
    }
    run.isa = halyard_isa_name(isa);
    const PeerOptions peer_options{options.python, run.machine.cold_set(), isa};
    std::vector<std::unique_ptr<Peer>> peers = make_peers(options, peer_options, run);

    std::vector<pid_t> processes;
    for (const auto &peer : peers) {
        const std::vector<pid_t> more = peer->processes();
        processes.insert(processes.end(), more.begin(), more.end());
    }
    std::sort(processes.begin(), processes.end());
    processes.erase(std::unique(processes.begin(), processes.end()), processes.end());
    const BusyElsewhere busy_elsewhere(run.machine, processes);

    const bool is_terminal = isatty(STDERR_FILENO) != 0;
    std::cerr << "measuring the limits of the machine" << std::flush;
    run.limits = measure_limits(
        run.machine, isa, run.threads,
        [is_terminal](const std::string &what) {
            if (is_terminal) {
                std::cerr << "\r\x1b[Kmeasuring the limits of the machine: " << what << std::flush;
            }
        },
        [] { return interrupted != 0; });
    std::cerr << (is_terminal ? "\r\x1b[Kmeasured the limits of the machine" : "") << std::endl;
    run.loop_overhead = loop_overhead();

    bool all_right = true;
    Runner runner(options, run, peer_options, peers, processes);
    for (std::size_t i = 0; i < rows.size() && interrupted == 0; i++) {
        std::cerr << "[" << i + 1 << "/" << rows.size() << "] " << rows[i].name() << "  " << std::flush;
        run.rows.push_back(runner.measure_row(rows[i]));
        all_right = all_right && !run.rows.back().is_wrong && run.rows.back().failure.empty();
        std::cerr << summary_of(run.rows.back()) << std::endl;
        run.busy_elsewhere = busy_elsewhere.share();
        write_json(run, options.json_file);
    }
    run.interrupted = interrupted != 0;
    write_json(run, options.json_file);
    print_tables(run, std::cout);
    return run.interrupted ? exit_interrupted : all_right ? 0 : exit_wrong_result;
}

}  // namespace
}  // namespace halyard::bench

int main(int argc, char **argv) {
    using namespace halyard::bench;
    Options options;
    CLI::App app{"Measures every kernel of halyard against the limits of this machine and against its peers."};
    bool quick = false;
    auto *quick_flag = app.add_flag("--quick", quick,
                                    "every kernel at one shape and the rows that say most: under 2 minutes (default)");
    app.add_flag("--full", options.full, "every kernel, shape and type: many hours, so give it a filter")
        ->excludes(quick_flag);
    app.add_option("--filter", options.filter, "only rows whose name matches this regular expression");
    app.add_flag("--list", options.list, "print the names of the rows and stop");
    app.add_option("--json", options.json_file, "write the results to this file")->take_last();
    app.add_option("--threads", options.threads, "threads of ours and of the peers (default: all processors)")
        ->check(CLI::Range(1, 256));
    app.add_option("--isa", options.isa, "use no instruction set above this one")
        ->check(CLI::IsMember(isa_names()));
    app.add_option("--peers", options.peers, "all (those that are there), none, or names with commas between them")
        ->check(known_peers)
        ->capture_default_str();
    app.add_option("--python", options.python, "the Python interpreter that has PyTorch")->capture_default_str();
    app.add_option("--rounds", options.rounds, "samples of each contender per row (default: 7 hot, 5 cold)")
        ->check(CLI::Range(1, 1000));
    try {
        app.parse(argc, argv);
        return run_benchmark(options);
    } catch (const CLI::CallForHelp &help) {
        return app.exit(help);
    } catch (const CLI::ParseError &error) {
        std::cerr << "halyard-bench: " << error.what() << "\n" << app.help();
        return exit_usage;
    } catch (const std::regex_error &) {
        std::cerr << "halyard-bench: '" << options.filter << "' is no regular expression\n";
        return exit_usage;
    } catch (const std::exception &error) {
        std::cerr << "halyard-bench: " << error.what() << "\n";
        return 1;
    }
}
