// GEMMs on a device: y = alpha x w + beta c + bias, by cuBLASLt where it is there and has an algorithm
// for the operands, else by a kernel of this library.
//
// Sums are in f32, and rounded once. Which order they are taken in is cuBLASLt's choice, and may depend on the number
// of rows; that of this library's kernel does not.
#ifndef HALYARD_RUNTIME_CUDA_LINEAR_GEMM_H
#define HALYARD_RUNTIME_CUDA_LINEAR_GEMM_H

#include "cuda/launch.h"

namespace halyard::cuda {

/** Several GEMMs in one call: elements from the operand of one to that of the next, 0 where they share it. */
struct ProductBatch {
    int64_t count = 1;
    int64_t x = 0, w = 0, c = 0, y = 0;
};

/** All pointers are to memory of the device, aligned to their elements; pitches count elements. Rows, columns and depth
 * are 1 to 2^31 - 1. y may be c, see product_in_place(), and else overlaps nothing. */
struct DeviceProduct {
    int64_t rows = 0, columns = 0, depth = 0;  // of x; of y; features of a row of x
    DType dtype = DType::f32;                  // of x and w
    DType y_dtype = DType::f32;                // of y, c and bias: f32 or `dtype`

    const void *x = nullptr;  // [rows][x_pitch]
    const void *w = nullptr;  // [columns][w_pitch] if transposed, as torch.nn.Linear has it, else [depth][w_pitch]
    bool w_transposed = true;
    void *y = nullptr;           // [rows][y_pitch]
    const void *c = nullptr;     // [rows][c_pitch]; null: beta counts for 0
    const void *bias = nullptr;  // null or [columns]
    int64_t x_pitch = 0, w_pitch = 0, y_pitch = 0, c_pitch = 0;
    float alpha = 1.0f, beta = 0.0f;

    // All combinations of both: the heads of a group that share keys and the groups, say. The bias is the same for all.
    ProductBatch batches[2];
};

/** What a GEMM needs of the scratch memory of its call; `workspace` has so many bytes, or is null where that is 0.
 */
int64_t product_workspace_bytes(Launches &launches);

/** Whether y may be c where y is of this type. cuBLASLt adds to y in memory on sm_90, so that in 16 bits the product would be
 * rounded before c is added to it. */
bool product_in_place(DType y_dtype);

/** Puts the GEMM into the stream. Does nothing after a failure. */
void product(Launches &launches, const DeviceProduct &product, void *workspace);

}  // namespace halyard::cuda

#endif
