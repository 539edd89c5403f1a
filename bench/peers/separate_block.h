// A transformer block with every kernel as a call of this library.
#ifndef HALYARD_BENCH_PEERS_SEPARATE_BLOCK_H
#define HALYARD_BENCH_PEERS_SEPARATE_BLOCK_H

#include <memory>

#include "peers/peer.h"

namespace halyard::bench {

/** Norm, the product of q, k and v, attention, the product after it with the residual, and the feed-forward network
 * with its norm and residual: what the block's time is held against. On matrices packed anew and the block's own
 * caches. */
std::unique_ptr<PeerContender> make_separate_block(BenchmarkCase &bench_case);

}  // namespace halyard::bench

#endif
