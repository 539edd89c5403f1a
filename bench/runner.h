// Measures rows one after another with everything that stays the same between them.
#ifndef HALYARD_BENCH_RUNNER_H
#define HALYARD_BENCH_RUNNER_H

#include <csignal>
#include <memory>
#include <vector>

#include "peers/peer.h"
#include "result.h"
#include "timing/busy_elsewhere.h"
#include "timing/team.h"

namespace halyard::bench {

/** Set by a signal: the run ends with what it has. */
extern volatile std::sig_atomic_t interrupted;

struct RunnerOptions {
    int rounds = 0;  // 0: as suits the row
    bool with_slow_peers = true;
};

class Runner {
public:
    Runner(const RunnerOptions &given, const PeerOptions &peer_choices,
           const std::vector<std::unique_ptr<Peer>> &present, BusyElsewhere &elsewhere)
        : options(given), peer_options(peer_choices), peers(present), busy_elsewhere(elsewhere) {}

    RowResult measure_row(const CaseId &id);

private:
    struct Own;
    void measure_into(RowResult &row);
    std::size_t measure_beside(RowResult &row, BenchmarkCase &bench_case, const Own &own, std::size_t first,
                               std::size_t most);
    int rounds_of(const CaseId &id) const;
    /** Lets the peer prepare the row; null, with the result's reason, if it does not. */
    std::unique_ptr<PeerContender> begin_peer(Peer &peer, BenchmarkCase &bench_case, PeerResult &result) const;
    /** Whether it is ready and right. */
    static bool finish_peer(PeerContender &side, BenchmarkCase &bench_case, PeerResult &result);

    RunnerOptions options;
    PeerOptions peer_options;
    const std::vector<std::unique_ptr<Peer>> &peers;
    BusyElsewhere &busy_elsewhere;
    std::unique_ptr<Team> team;
};

}  // namespace halyard::bench

#endif
