// The matmul family on GPUs.
#ifndef HALYARD_SCHEDULES_GPU_MATMUL_H
#define HALYARD_SCHEDULES_GPU_MATMUL_H

#include "Halide.h"

namespace halyard::schedules::gpu {

/** Inputs of a matrix product that are staged in shared memory at a time. */
constexpr int product_block = 16;

struct Product {
    Halide::Func x_block;  // x_block(input, row, batch), in f32, zeros beyond the ends
    Halide::Func w_block;  // w_block(input, column, batch), likewise
    Halide::Func partial;  // partial(column, row, batch, part): of product_block inputs
    Halide::Func sum;      // sum(column, row, batch): update over the parts
    Halide::Func y;        // y(column, row, batch)
    Halide::Var input, column, row, batch;
    bool transposed;  // w's inputs lie side by side
};

void product(const Product &stages);

}  // namespace halyard::schedules::gpu

#endif
