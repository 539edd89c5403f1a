// Requests to peers in other processes. Those in Python are told what a row computes, with its tensors in files; of a
// matrix only what it repeats is sent.
#ifndef HALYARD_BENCH_PEERS_DESCRIBE_H
#define HALYARD_BENCH_PEERS_DESCRIBE_H

#include "peers/process.h"

namespace halyard::bench {

nlohmann::json describe_row(const Process &process, const BenchmarkCase &bench_case);

/** A row as another process of this program makes it anew. */
nlohmann::json describe_id(const CaseId &id);
CaseId id_of(const nlohmann::json &row);

nlohmann::json describe(const Accuracy &accuracy);
Accuracy accuracy_of(const nlohmann::json &described);

}  // namespace halyard::bench

#endif
