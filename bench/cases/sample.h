// What an output should be in a sample of its rows and columns: large outputs are judged by these.
#ifndef HALYARD_BENCH_CASES_SAMPLE_H
#define HALYARD_BENCH_CASES_SAMPLE_H

#include <vector>

#include "matrix.h"

namespace halyard::bench {

struct Sample {
    std::vector<std::int64_t> rows, columns;  // ascending
    std::vector<operations::Row> expected;    // [row of the sample][column of the sample]
    double known_error = 0;                   // of what was judged otherwise

    /** As Accuracy::error, at least `known_error`; infinite if a NaN stands anywhere in y. */
    double worst_error(const Matrix &y) const;
};

/** `most` of [0, count), the first and the last among them. */
std::vector<std::int64_t> spread(std::int64_t count, std::int64_t most);

}  // namespace halyard::bench

#endif
