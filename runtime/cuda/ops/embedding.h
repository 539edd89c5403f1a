// Rows of a table on a device by numbers in memory of the process.
#ifndef HALYARD_RUNTIME_CUDA_OPS_EMBEDDING_H
#define HALYARD_RUNTIME_CUDA_OPS_EMBEDDING_H

#include "cuda/launch.h"
#include "layout/embed_rows.h"

namespace halyard::cuda {

/** Makes rows in f32, one after another: multiplier times the table's row of each number that is added. */
class RowGather {
public:
    RowGather(Launches &launches, const View &table, float multiplier, float *y);

    /** A number that the table has. */
    void add(int64_t row);
    /** Puts what is left into the stream. */
    void finish();

private:
    Launches &launches_;
    const View &table_;
    float multiplier_;
    float *y_;
    const int most_;  // rows of a launch
    int64_t rows_[embedded_rows];
    int count_ = 0;
};

}  // namespace halyard::cuda

#endif
