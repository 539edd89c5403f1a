// What cuBLASLt's functions take, as the library declares it; its header is not needed to build this one. A test
// compares the numbers with that header.
#ifndef HALYARD_RUNTIME_CUDA_LINEAR_BLASLT_TYPES_H
#define HALYARD_RUNTIME_CUDA_LINEAR_BLASLT_TYPES_H

#include <cstddef>
#include <cstdint>

namespace halyard::cuda::blaslt {

using Status = int;
constexpr Status succeeded = 0, allocation_failed = 3, invalid_value = 7, not_supported = 15;

using Handle = struct HandleOfLibrary *;
using Operation = struct OperationOfLibrary *;
using Layout = struct LayoutOfLibrary *;
using Preference = struct PreferenceOfLibrary *;

struct Algorithm {
    uint64_t data[8];
};

struct HeuristicResult {
    Algorithm algorithm;
    size_t workspace_bytes;
    Status status;
    float waves;
    int reserved[4];
};

// cudaDataType_t and cublasComputeType_t
constexpr int real_f32 = 0, real_f16 = 2, real_bf16 = 14;
constexpr int compute_f32 = 68;

// cublasOperation_t
constexpr int as_it_is = 0, transposed = 1;

// cublasLtMatmulDescAttributes_t, cublasLtEpilogue_t
constexpr int operation_transpose_a = 3, operation_transpose_b = 4, operation_epilogue = 7, operation_bias = 8,
              operation_bias_type = 26;
constexpr int epilogue_bias = 4;

// cublasLtMatrixLayoutAttribute_t
constexpr int layout_batch_count = 5, layout_batch_step = 6;

// cublasLtMatmulPreferenceAttributes_t, cublasLtReductionScheme_t
constexpr int preference_workspace = 1, preference_reductions = 3, preference_alignment_a = 5,
              preference_alignment_b = 6, preference_alignment_c = 7, preference_alignment_d = 8;
constexpr uint32_t reductions_in_place = 1, reductions_in_compute_type = 2;

}  // namespace halyard::cuda::blaslt

#endif
