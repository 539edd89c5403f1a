// Weights on a device: the matrix row by row in its dtype, gate and up in one, and what its layer's epilogue reads of
// columns.
//
//   column sums   f32 [columns]: of each column of the matrix, for the mean of a deferred LayerNorm
//   column bias   f32 [columns]: the folded norm's bias times the matrix, 0 where there is none
//   zeros         f32 [columns]
//   one           f32 [2]: 1, 0
//   matrix        [columns][pitch], the inputs side by side, if it was given as [out, in]; else [in_features][pitch]
//
// Each begins at a multiple of 256 bytes, rows of the matrix at multiples of 16: what lies between is 0. Columns of
// `up` begin at up_column, the next multiple of 16 bytes after the gate's.
#ifndef HALYARD_RUNTIME_CUDA_LINEAR_WEIGHTS_H
#define HALYARD_RUNTIME_CUDA_LINEAR_WEIGHTS_H

#include "core/calls/pack.h"
#include "core/check.h"
#include "core/handles/weights.h"

namespace halyard::cuda {

/** What follows from the sizes of a matrix. */
struct DeviceMatrix {
    explicit DeviceMatrix(const PackSources &sources);

    bool transposed;  // [columns][pitch]
    int64_t up_column, columns, rows, pitch;
    int64_t vector_bytes;  // of each of the three
    int64_t matrix_offset, bytes;
};

}  // namespace halyard::cuda

#endif
