// See runner.h.
#include "runner.h"

#include <algorithm>
#include <functional>
#include <iterator>

#include "timing/row_limits.h"

namespace halyard::bench {

volatile std::sig_atomic_t interrupted = 0;

namespace {

/** What a function makes of each round's two values. */
template<typename Function>
std::vector<double> by_round(const std::vector<double> &a, const std::vector<double> &b, const Function &function) {
    std::vector<double> values;
    std::transform(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())), b.begin(),
                   std::back_inserter(values), function);
    return values;
}

Estimate ratio(const std::vector<double> &over, const std::vector<double> &under) {
    return estimate(by_round(over, under, std::divides<>()));
}

/** seconds: of ours, of `limit_count` limits, of peers, of ours again. */
void take_ours(RowResult &row, const BenchmarkCase &bench_case, std::size_t limit_count,
               const std::vector<std::vector<double>> &seconds) {
    row.rounds = static_cast<int>(seconds.back().size());
    row.seconds = estimate(seconds.front());
    // The faster of two reads or copies; what a layer cannot do without besides may take longer.
    std::vector<double> limit = seconds[1];
    if (limit_count > 1 && estimate(seconds[2]).median < estimate(limit).median) {
        limit = seconds[2];
        row.limit_loop = Loop::hinted;
    }
    if (row.id.has_roofline()) {
        row.limit_loop = Loop::plain;
        row.read_seconds = estimate(limit);
        row.multiply_add_seconds = estimate(seconds[3]);
        limit = by_round(limit, seconds[3], [](double a, double b) { return std::max(a, b); });
    }
    row.limit_seconds = estimate(limit);
    row.fraction = ratio(limit, seconds[0]);
    if (row.id.has_roofline()) {
        row.sets = bench_case.sets.size();
        row.resident = bench_case.resident;
    }
    row.again = ratio(seconds.back(), seconds.front());
}

}  // namespace

/** Our contenders for a row. */
struct Runner::Own {
    Contender *ours, *again;
    std::vector<Contender *> limits;
};

RowResult Runner::measure_row(const CaseId &id) {
    constexpr int most_attempts = 3;
    RowResult row{};
    for (int attempt = 1; attempt <= most_attempts; attempt++) {
        row = RowResult{};
        row.id = id;
        row.attempts = attempt;
        try {
            measure_into(row);
        } catch (const std::exception &error) {
            row.failure = error.what();
        }
        // Something disturbed the limit in its turns; a limit that stays too low is marked as such.
        if (!row.is_beyond_limit() || interrupted != 0) {
            break;
        }
    }
    return row;
}

void Runner::measure_into(RowResult &row) {
    const CaseId &id = row.id;
    BenchmarkCase bench_case(id, peer_options.cold_set, peer_options.isa);
    row.isa = halyard_isa_name(halyard_context_isa(bench_case.context.get()));
    row.tolerance = bench_case.tolerance();
    bench_case.spoil_outputs();
    bench_case.call(0);
    row.accuracy = bench_case.accuracy();
    row.is_wrong = !(row.accuracy.error <= row.tolerance);
    if (row.is_wrong) {
        return;
    }

    if (team == nullptr || team->size() != id.threads) {
        team = std::make_unique<Team>(id.threads);
    }
    const auto call = [&bench_case](std::size_t set) { bench_case.id.kernel->call(bench_case, bench_case.sets[set]); };
    Local ours(call, bench_case.sets.size()), ours_again(call, bench_case.sets.size());
    const auto limits = limits_of(bench_case, halyard_context_isa(bench_case.context.get()), *team);
    Own own{&ours, &ours_again, {}};
    for (const auto &limit : limits) {
        own.limits.push_back(limit.get());
    }
    // Two models in memory are enough: their peers come one by one, each with rounds of its own.
    const std::size_t at_once = id.is_model() ? 1 : std::max<std::size_t>(peers.size(), 1);
    std::size_t next = 0;
    do {
        next = measure_beside(row, bench_case, own, next, at_once);
    } while (next < peers.size() && interrupted == 0);
}

/** Prepares the peers from `first` on until `most` are ready, and measures them with ours; returns the next one.
 * The first time the row's own results are taken too. */
std::size_t Runner::measure_beside(RowResult &row, BenchmarkCase &bench_case, const Own &own, std::size_t first,
                                   std::size_t most) {
    std::vector<Contender *> contenders{own.ours};
    if (first == 0) {
        contenders.insert(contenders.end(), own.limits.begin(), own.limits.end());
    }
    std::size_t place = contenders.size(), next = first;
    std::vector<std::unique_ptr<PeerContender>> sides, begun;
    for (; next < peers.size() && sides.size() < most; next++) {
        row.peers.push_back(PeerResult{});
        begun.push_back(begin_peer(*peers[next], bench_case, row.peers.back()));
        if (sides.size() + begun.size() < most && next + 1 < peers.size()) {
            continue;  // they prepare at the same time
        }
        for (std::size_t i = 0; i < begun.size(); i++) {
            PeerResult &result = row.peers[row.peers.size() - begun.size() + i];
            if (begun[i] != nullptr && finish_peer(*begun[i], bench_case, result)) {
                sides.push_back(std::move(begun[i]));
            }
        }
        begun.clear();
    }
    if (first > 0 && sides.empty()) {
        return next;
    }
    for (const auto &side : sides) {
        contenders.push_back(&side->contender());
    }
    contenders.push_back(own.again);
    std::vector<pid_t> processes;
    for (const auto &peer : peers) {
        processes.push_back(peer->process_id());
    }
    const Plan plan{rounds_of(row.id), row.id.cold ? 20e-3 : 6e-3, with_descendants(processes),
                    [] { return interrupted != 0; }};
    busy_elsewhere.begin(plan.processes);
    const std::vector<std::vector<double>> seconds = measure(contenders, plan);
    busy_elsewhere.end();
    if (first == 0) {
        take_ours(row, bench_case, own.limits.size(), seconds);
    }
    for (std::size_t i = first; i < next; i++) {
        PeerResult &peer = row.peers[i];
        if (peer.reason.empty() && !peer.is_wrong) {
            peer.reason = contenders[place]->failure;
            peer.seconds = estimate(seconds[place]);
            peer.ratio = ratio(seconds[place], seconds[0]);
            if (peer.reason.empty() && peer.ratio.samples == 0) {
                peer.reason = "the run was interrupted before its turn";
            }
            place++;
        }
    }
    return next;
}

int Runner::rounds_of(const CaseId &id) const {
    constexpr double long_call = 4e10;  // multiplications and additions: a tenth of a second
    return options.rounds != 0 ? options.rounds : id.has_roofline() && id.flops() > long_call ? 3 : id.cold ? 5 : 7;
}

std::unique_ptr<PeerContender> Runner::begin_peer(Peer &peer, BenchmarkCase &bench_case, PeerResult &result) const {
    result.peer = peer.name;
    result.reason = peer.refusal(bench_case.id);
    if (result.reason.empty() && interrupted != 0) {
        result.reason = "the run was interrupted before its turn";
    }
    if (result.reason.empty() && peer.slow_to_prepare() && !options.with_slow_peers) {
        result.reason = "left out by --quick, where it would take most of the time";
    }
    return result.reason.empty() ? peer.prepare(bench_case) : nullptr;
}

bool Runner::finish_peer(PeerContender &side, BenchmarkCase &bench_case, PeerResult &result) {
    result.reason = side.wait();
    if (!result.reason.empty()) {
        return false;
    }
    result.accuracy = side.accuracy();
    result.is_wrong = !(result.accuracy.error <= bench_case.peer_tolerance());
    result.note = side.note;
    result.resident = side.resident;
    return !result.is_wrong;
}

}  // namespace halyard::bench
