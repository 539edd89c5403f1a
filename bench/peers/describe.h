// What a peer is told of a row: what it computes, with its tensors in files; of a matrix only what it repeats is sent.
#ifndef HALYARD_BENCH_PEERS_DESCRIBE_H
#define HALYARD_BENCH_PEERS_DESCRIBE_H

#include "peers/process.h"

namespace halyard::bench {

nlohmann::json describe_row(const Process &process, const BenchmarkCase &bench_case);

}  // namespace halyard::bench

#endif
