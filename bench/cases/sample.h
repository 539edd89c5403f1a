// What an output should be in a sample of its rows and columns: large outputs are judged by these.
#ifndef HALYARD_BENCH_CASES_SAMPLE_H
#define HALYARD_BENCH_CASES_SAMPLE_H

#include <vector>

#include "matrix.h"

namespace halyard::bench {

/** How far outputs are from the float64 reference. */
struct Accuracy {
    /** The largest error relative to the largest value of the same row and output; infinite where a NaN stands. */
    double error = 0;
    /** The largest error in units in the last place of the exact result; negative where it is not counted: products
     *  cancel, so that a small element has a large one whoever computes it. */
    double ulps = -1;

    /** Counts a row of this type. */
    void add(const operations::Row &got, const operations::Row &exact, Dtype dtype);
};

struct Sample {
    /** Some rows and columns of an output of this size, the first and the last among them; all if it has no more. */
    Sample(std::int64_t of_rows, std::int64_t most_rows, std::int64_t of_columns, std::int64_t most_columns);

    std::vector<std::int64_t> rows, columns;  // ascending
    std::vector<operations::Row> expected;    // [row of the sample][column of the sample]
    double known_error = 0;                   // of what was judged otherwise

    /** The next row of the sample, of which its columns count. */
    void expect(const operations::Row &row);
    /** As Accuracy::error, at least `known_error`; infinite if a NaN stands anywhere in y. */
    double worst_error(const Matrix &y) const;
};

/** `most` of [0, count), the first and the last among them. */
std::vector<std::int64_t> spread(std::int64_t count, std::int64_t most);

}  // namespace halyard::bench

#endif
