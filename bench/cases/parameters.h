// The matrices and vectors that a layer, a block or a model is made with, by name: the library, the references and peers take
// them from here. Of a cache, the keys and values in it.
#ifndef HALYARD_BENCH_CASES_PARAMETERS_H
#define HALYARD_BENCH_CASES_PARAMETERS_H

#include <map>
#include <string>

#include "matrix.h"

namespace halyard::bench {

struct Parameters {
    std::map<std::string, PeriodicMatrix> matrices;          // [out, in]
    std::map<std::string, std::unique_ptr<Matrix>> vectors;  // [1, out]

    /** Values of a deviation of 1 / sqrt(in), as before a training, or of this. */
    void add_matrix(const std::string &name, Dtype dtype, std::int64_t out, std::int64_t in, unsigned seed,
                    double deviation = 0);
    void add_vector(const std::string &name, Dtype dtype, std::int64_t width, unsigned seed, double mean);

    /** Null, or empty, where there is none. */
    const DLTensor *vector(const std::string &name) const;
    operations::Row values(const std::string &name) const;
};

}  // namespace halyard::bench

#endif
