// What a peer is to the benchmark: something a user could call instead, present in some builds and on some machines.
// One file per peer, which says all that there is to know of it: in C++ one that ends in a registration, which nothing
// else names but the line in CMakeLists.txt; in Python one called NAME_peer.py (served.py says how), which nothing else
// names at all.
#ifndef HALYARD_BENCH_PEERS_PEER_H
#define HALYARD_BENCH_PEERS_PEER_H

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "benchmark_case.h"
#include "result.h"
#include "timing/measure.h"

namespace halyard::bench {

/** A peer's side of one BenchmarkCase. */
class PeerContender {
public:
    virtual ~PeerContender() = default;
    virtual Contender &contender() = 0;
    /** Waits until it is ready, where that happens in another process: empty, or why it cannot do the work. Once. */
    virtual std::string wait() { return {}; }
    /** Does the work once and returns the errors of what came out. */
    virtual Accuracy accuracy() = 0;
    /** What a reader should know, such as that it allocates its output; may be empty. */
    std::string note;
    /** Of models: how many bytes larger its process became; 0 if nobody looked. */
    std::size_t resident = 0;
};

class Peer {
public:
    virtual ~Peer() = default;
    virtual std::string name() const = 0;
    virtual std::string version() const = 0;
    /** Without more it is this library, called in another way. */
    virtual PeerAbout about() const { return {"halyard", "", "", "C"}; }
    /** Other processes that work for it. */
    virtual std::vector<pid_t> processes() const { return {}; }
    /** True if preparing a row takes seconds: --quick then leaves it out. */
    virtual bool slow_to_prepare() const { return false; }
    /** Empty, or why it does no such row: asked before anything is made for it. */
    virtual std::string refusal(const CaseId &) const { return {}; }
    /** Its side of the work, which may have to be waited for; null, with `reason` saying why, if it cannot do it. */
    virtual std::unique_ptr<PeerContender> prepare(BenchmarkCase &bench_case, std::string &reason) = 0;
};

/** How the program was asked to find peers. */
struct PeerOptions {
    std::string python;  // the interpreter that may have PyTorch
    std::size_t cold_set;
    halyard_isa isa;
    double row_limit;  // seconds that a peer's process gets for one row

    /** True if the program was told to use a lesser instruction set than this machine has: peers then do likewise. */
    bool caps_isa() const;
};

/** Makes the peer; null, with `reason` saying why, if it is not on this machine. */
using MakePeer = std::function<std::unique_ptr<Peer>(const PeerOptions &options, std::string &reason)>;

/** Where a peer's code runs. Code of others gets a process of its own: what crashes or hangs there is reported. */
enum class Runs { here, isolated };

struct KnownPeer {
    std::string name;
    MakePeer make;
    Runs where;
};
/** An object of this at namespace scope adds a peer. */
struct PeerRegistration {
    PeerRegistration(const char *name, const MakePeer &make, Runs where = Runs::here);
};
/** All of them and those that are Python files, sorted by name. */
std::vector<KnownPeer> known_peers(const std::vector<std::string> &folders);

/** The peers that are NAME_peer.py in these folders (remote_peer.cpp). */
std::vector<KnownPeer> python_peers(const std::vector<std::string> &folders);
/** A peer that does its work in another process of this program (remote_peer.cpp). */
std::unique_ptr<Peer> make_isolated(const std::string &name, const PeerOptions &options, std::string &reason);
/** What that process does (serve.cpp): answers on standard output what it is asked on standard input, until that
 * ends. */
int serve_peer(const KnownPeer &peer, const PeerOptions &options);

/** One matrix product without anything round it: what a BLAS has. */
bool is_plain_f32_product(const CaseId &id);

/** A PeerContender that is a call in this process on the operands of `bench_case`. */
template<typename Call>
std::unique_ptr<PeerContender> make_local_peer(BenchmarkCase &bench_case, Call call) {
    class LocalPeer : public PeerContender {
    public:
        LocalPeer(BenchmarkCase &owner, const Call &run)
            : bench_case(owner), call(run), local(run, owner.sets.size()) {}
        Contender &contender() override { return local; }
        Accuracy accuracy() override {
            bench_case.spoil_outputs();
            call(0);
            return bench_case.accuracy();
        }

    private:
        BenchmarkCase &bench_case;
        Call call;
        Local<Call> local;
    };
    return std::make_unique<LocalPeer>(bench_case, call);
}

}  // namespace halyard::bench

#endif
