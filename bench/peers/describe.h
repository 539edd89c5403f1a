// Requests to peers in Python: what a row computes, with its tensors in files. Of a matrix only what it repeats is
// sent.
#ifndef HALYARD_BENCH_PEERS_DESCRIBE_H
#define HALYARD_BENCH_PEERS_DESCRIBE_H

#include "peers/python_process.h"

namespace halyard::bench {

/** Of any row but models. */
nlohmann::json describe_row(const PythonProcess &process, const Work &work);
/** Of a model. */
nlohmann::json describe_model(const PythonProcess &process, const Work &work);

}  // namespace halyard::bench

#endif
