// Requests to peers in Python: what a row computes, with its tensors in files. Of a matrix only what it repeats is
// sent.
#ifndef HALYARD_BENCH_PEERS_DESCRIBE_H
#define HALYARD_BENCH_PEERS_DESCRIBE_H

#include "peers/process.h"

namespace halyard::bench {

/** Of any row but models. */
nlohmann::json describe_row(const Process &process, const Work &work);
/** Of a model. */
nlohmann::json describe_model(const Process &process, const Work &work);

nlohmann::json describe(const Accuracy &accuracy);
Accuracy accuracy_of(const nlohmann::json &described);

}  // namespace halyard::bench

#endif
