// What a peer is to the benchmark: something a user could call instead, present on some machines. It is one Python file called
// NAME_peer.py, which says all that there is to know of it (served.py says how) and which nothing else names; its code runs in
// a process of its own.
#ifndef HALYARD_BENCH_PEERS_PEER_H
#define HALYARD_BENCH_PEERS_PEER_H

#include <map>

#include "peers/process.h"
#include "timing/measure.h"

namespace halyard::bench {

/** What a peer is told of a row (describe.cpp). */
nlohmann::json describe_row(const Process &process, const BenchmarkCase &bench_case);

/** A peer's side of one BenchmarkCase, which its process prepares and then times whenever it is asked: requests "prepare", "time" and
 * "release". */
class PeerContender : private Contender {
public:
    /** Sends the request of describe_row() with `id`, threads and the names of the output files added. */
    PeerContender(BenchmarkCase &bench_case, Process &process);
    ~PeerContender() override;
    Contender &contender() { return *this; }

    /** Waits until it is ready: empty, or why it cannot do the work. Once. */
    std::string wait();
    /** The errors of what came out of one call. */
    Accuracy accuracy() const;
    /** What a reader should know, such as that it allocates its output; may be empty. */
    std::string note;
    /** How many bytes larger its process became by a model; 0 if nobody looked. */
    std::size_t resident = 0;

private:
    bool times_itself() const override { return true; }
    void run(benchmark::State &state) override;
    /** The reply within what is left of the row's time. */
    nlohmann::json hear();

    BenchmarkCase &bench_case;
    Process &process;
    int id;
    double seconds_left;
    bool is_awaited = true;
};

/** The peers in these folders: {name, file}. */
std::map<std::string, std::string> known_peers(const std::vector<std::string> &folders);

class Peer {
public:
    Peer(std::string name, const std::string &script, const PeerOptions &options);

    const std::string name;
    /** Empty, or why it is not there. */
    std::string missing() const;
    /** What it says of itself: version, title, family, how, lacks, interface, ... (served.py). */
    const nlohmann::json &about() const { return hello; }
    pid_t process_id() const { return process.id(); }
    /** True if preparing a row takes seconds: --quick then leaves it out. */
    bool slow_to_prepare() const { return hello.value("slow", false); }
    /** Empty, or why it does no such row: asked before anything is made for it. */
    std::string refusal(const CaseId &id) const;
    /** Its side of the bench_case, which has to be waited for. */
    std::unique_ptr<PeerContender> prepare(BenchmarkCase &bench_case) {
        return std::make_unique<PeerContender>(bench_case, process);
    }

private:
    bool is_capped;
    Process process;
    nlohmann::json hello;
};

}  // namespace halyard::bench

#endif
