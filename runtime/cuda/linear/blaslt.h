// cuBLASLt, opened at run time: nothing of CUDA is linked.
#ifndef HALYARD_RUNTIME_CUDA_LINEAR_BLASLT_H
#define HALYARD_RUNTIME_CUDA_LINEAR_BLASLT_H

#include "cuda/linear/gemm.h"

namespace halyard::cuda {

/** The environment variable that, set to "off" before the first GEMM, makes the kernels of this library compute all
 * of them. */
constexpr const char *blaslt_variable = "HALYARD_CUBLASLT";

/** Workspace that algorithms may ask for: what cuBLAS takes for itself on sm_90. */
constexpr int64_t blaslt_workspace_bytes = 32 << 20;

/** Whether cuBLASLt is there. */
bool has_blaslt();

/** Puts a GEMM into the stream; batches[1] is one. False if cuBLASLt is not there or has no algorithm for it. Fails
 * the check where the GEMM was refused for another reason. */
bool blaslt_product(Launches &launches, const DeviceProduct &product, void *workspace);

}  // namespace halyard::cuda

#endif
