// What a peer is to the benchmark: something a user could call instead, present in some builds and on some machines.
// One file per peer, which ends in a registration; nothing else names it but the line in CMakeLists.txt.
#ifndef HALYARD_BENCH_PEERS_PEER_H
#define HALYARD_BENCH_PEERS_PEER_H

#include <memory>
#include <string>
#include <vector>

#include "measure.h"
#include "work.h"

namespace halyard::bench {

/** A peer's side of one Work. */
class PeerContender {
public:
    virtual ~PeerContender() = default;
    virtual Contender &contender() = 0;
    /** Does the work once and returns the largest error of what came out, as Work::worst_error counts it. */
    virtual double error() = 0;
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
    /** Other processes that work for it. */
    virtual std::vector<pid_t> processes() const { return {}; }
    /** True if preparing a row takes seconds: the quick mode then does it only for rows with a bar to reach. */
    virtual bool slow_to_prepare() const { return false; }
    /** Its side of the work; null, with `reason` saying why, if it cannot do it. */
    virtual std::unique_ptr<PeerContender> prepare(Work &work, std::string &reason) = 0;
};

/** How the program was asked to find peers. */
struct PeerOptions {
    std::string python;  // the interpreter that may have PyTorch
    std::size_t cold_set;
    halyard_isa isa;

    /** True if the program was told to use a lesser instruction set than this machine has: peers then do likewise. */
    bool caps_isa() const;
};

/** Makes the peer; null, with `reason` saying why, if it is not on this machine. */
using MakePeer = std::unique_ptr<Peer> (*)(const PeerOptions &options, std::string &reason);

struct PeerRegistration {
    PeerRegistration(const char *name, MakePeer make);
    const char *name;
    MakePeer make;
};
/** All of them, sorted by name. */
std::vector<PeerRegistration> registered_peers();

/** A PeerContender that is a call in this process on the operands of `work`. */
template<typename Call>
std::unique_ptr<PeerContender> make_local_peer(Work &work, Call call) {
    class LocalPeer : public PeerContender {
    public:
        LocalPeer(Work &owner, const Call &run) : work(owner), call(run), local(run, owner.sets.size()) {}
        Contender &contender() override { return local; }
        double error() override {
            work.spoil_outputs();
            call(0);
            return work.worst_error();
        }

    private:
        Work &work;
        Call call;
        Local<Call> local;
    };
    return std::make_unique<LocalPeer>(work, call);
}

}  // namespace halyard::bench

#endif
