// How the operands of a block of a GEMM lie in memory, which kernels may count on (runtime/layout/matmul.h).
#ifndef HALYARD_GENERATORS_MATMUL_BOUNDS_H
#define HALYARD_GENERATORS_MATMUL_BOUNDS_H

#include "Halide.h"
#include "runtime/layout/matmul.h"
#include "schedules/kernel_tensors.h"

namespace halyard {

/** sum(column, panel, row, tile) and what it begins with. */
inline void bound_sums(Halide::OutputImageParam sum, Halide::OutputImageParam so_far, int rows) {
    sum.dim(0).set_bounds(0, panel_width);
    sum.dim(1).set_min(0).set_stride(panel_width);
    sum.dim(2).set_bounds(0, rows);
    so_far.dim(1).set_stride(panel_width);
}

/** scales(column, vector, group, panel). */
inline void bound_scales(Halide::OutputImageParam scales, int vectors) {
    begin_at_zero(scales);
    scales.dim(0).set_extent(panel_width);
    scales.dim(1).set_stride(panel_width);
    scales.dim(2).set_stride(vectors * panel_width);
}

}  // namespace halyard

#endif
