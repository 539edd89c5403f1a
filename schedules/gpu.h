// The row and elementwise families on GPUs.
#ifndef HALYARD_SCHEDULES_GPU_H
#define HALYARD_SCHEDULES_GPU_H

#include "Halide.h"
#include "schedules/elementwise.h"
#include "schedules/gpu_vectors.h"
#include "schedules/row.h"

namespace halyard::schedules::gpu {

/** How a row is spread over a block of threads; both are arguments of the kernel. */
struct RowThreadParams {
    Halide::Expr warps;  // that share a row
    Halide::Expr rows;   // in a block; those of a call are a multiple
    bool packed;         // buffers hold whole vectors of words, see promise_vectors()
    bool statistics;     // y is a few numbers per row, element by element
};

void elementwise(const Elementwise &stages, bool packed, const Halide::Target &target);

void row(const Row &stages, const RowThreadParams &params, const Halide::Target &target);

}  // namespace halyard::schedules::gpu

#endif
