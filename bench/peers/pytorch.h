// The Python process that has PyTorch, shared by the peers that live in it.
#ifndef HALYARD_BENCH_PEERS_PYTORCH_H
#define HALYARD_BENCH_PEERS_PYTORCH_H

#include "peers/process.h"

namespace halyard::bench {

struct TorchSession {
    Process process;
    std::string version;
    std::string transformers;  // the version of `transformers`; empty if it is not there

    /** One for all; null, with a reason, if this Python has no PyTorch. */
    static std::shared_ptr<TorchSession> start(const PeerOptions &options, std::string &reason);
};

}  // namespace halyard::bench

#endif
