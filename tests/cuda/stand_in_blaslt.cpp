// Stands in for cuBLASLt where there is no GPU, as libcublasLt.so.13: products of what is in memory of the process,
// which is that of the stand-in driver's devices too. Only what the library calls is there.
//
// It is as strict as the original, or more so: an algorithm fits the layouts, types and alignments that it was asked
// for with, and parts of sums stay in f32. Where the original was seen to do what nobody asked for, on an H200, it does that
// too: it adds in 16 bits to a c that is d, and takes the rows of d to begin where those of c do. Environment variables:
//   STAND_IN_FAIL      the name of a function that fails: cublasLtCreate for want of memory,
//   cublasLtMatmulAlgoGetHeuristic
//                      because there is no algorithm, cublasLtMatmul on execution
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "cuda/linear/blaslt_types.h"

// What the library takes the numbers to be is what the original's header says.
namespace ours = halyard::cuda::blaslt;
static_assert(ours::succeeded == CUBLAS_STATUS_SUCCESS && ours::allocation_failed == CUBLAS_STATUS_ALLOC_FAILED &&
              ours::invalid_value == CUBLAS_STATUS_INVALID_VALUE && ours::not_supported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(ours::real_f32 == CUDA_R_32F && ours::real_f16 == CUDA_R_16F && ours::real_bf16 == CUDA_R_16BF &&
              ours::compute_f32 == CUBLAS_COMPUTE_32F && ours::as_it_is == CUBLAS_OP_N &&
              ours::transposed == CUBLAS_OP_T);
static_assert(ours::operation_transpose_a == CUBLASLT_MATMUL_DESC_TRANSA &&
              ours::operation_transpose_b == CUBLASLT_MATMUL_DESC_TRANSB &&
              ours::operation_epilogue == CUBLASLT_MATMUL_DESC_EPILOGUE &&
              ours::operation_bias == CUBLASLT_MATMUL_DESC_BIAS_POINTER &&
              ours::operation_bias_type == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE &&
              ours::epilogue_bias == CUBLASLT_EPILOGUE_BIAS);
static_assert(ours::layout_batch_count == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT &&
              ours::layout_batch_step == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
static_assert(ours::preference_workspace == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES &&
              ours::preference_reductions == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK &&
              ours::preference_alignment_a == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
              ours::preference_alignment_b == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES &&
              ours::preference_alignment_c == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES &&
              ours::preference_alignment_d == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES &&
              ours::reductions_in_place == CUBLASLT_REDUCTION_SCHEME_INPLACE &&
              ours::reductions_in_compute_type == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
static_assert(sizeof(ours::Algorithm) == sizeof(cublasLtMatmulAlgo_t) &&
              sizeof(ours::HeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t) &&
              offsetof(ours::HeuristicResult, status) == offsetof(cublasLtMatmulHeuristicResult_t, state));

namespace {

bool fails(const char *function) {
    const char *text = std::getenv("STAND_IN_FAIL");
    return text && std::strcmp(text, function) == 0;
}

/** Attributes by number. */
struct Attributes {
    std::map<int, std::vector<char>> values;

    cublasStatus_t set(int attribute, const void *value, std::size_t size) {
        const char *const bytes = static_cast<const char *>(value);
        values[attribute].assign(bytes, bytes + size);
        return CUBLAS_STATUS_SUCCESS;
    }

    template<typename T>
    T get(int attribute, T otherwise) const {
        const auto found = values.find(attribute);
        if (found == values.end()) {
            return otherwise;
        }
        T value;
        if (found->second.size() != sizeof value) {
            std::abort();  // set with another size than it has
        }
        std::memcpy(&value, found->second.data(), sizeof value);
        return value;
    }
};

struct Layout : Attributes {
    cudaDataType type;
    std::uint64_t rows, columns;
    std::int64_t pitch;

    std::int32_t count() const { return get<std::int32_t>(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 1); }
    std::int64_t step() const { return get<std::int64_t>(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 0); }
    bool same_as(const Layout &other) const {
        return type == other.type && rows == other.rows && columns == other.columns && pitch == other.pitch &&
               values == other.values;
    }
};

struct Operation : Attributes {
    bool transposed(cublasLtMatmulDescAttributes_t which) const {
        return get<std::int32_t>(which, CUBLAS_OP_N) == CUBLAS_OP_T;
    }
    bool has_bias() const {
        return get<std::int32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT) == CUBLASLT_EPILOGUE_BIAS;
    }
};

/** What the heuristic has promised to compute. */
struct Promise {
    Layout layouts[4];
    std::uint32_t alignments[4];
    std::uint64_t workspace;
};

std::vector<Promise *> promises;
std::atomic<long> products{0}, heuristics{0}, objects{0};

float element(cudaDataType type, const void *data, std::int64_t index) {
    switch (type) {
    case CUDA_R_32F:
        return static_cast<const float *>(data)[index];
    case CUDA_R_16F:
        return __half2float(static_cast<const __half *>(data)[index]);
    default:
        return __bfloat162float(static_cast<const __nv_bfloat16 *>(data)[index]);
    }
}

void store(cudaDataType type, void *data, std::int64_t index, float value) {
    switch (type) {
    case CUDA_R_32F:
        static_cast<float *>(data)[index] = value;
        break;
    case CUDA_R_16F:
        static_cast<__half *>(data)[index] = __float2half(value);
        break;
    default:
        static_cast<__nv_bfloat16 *>(data)[index] = __float2bfloat16(value);
    }
}

float rounded(cudaDataType type, float value) {
    float stored = 0;
    store(type, &stored, 0, value);
    return element(type, &stored, 0);
}

bool real(const Layout &layout) {
    return layout.rows > 0 && layout.columns > 0 && layout.pitch >= static_cast<std::int64_t>(layout.rows) &&
           layout.count() > 0;
}

/** Whether the operands fit each other. */
bool fit(const Operation &o, const Layout &a, const Layout &b, const Layout &c, const Layout &d) {
    const bool ta = o.transposed(CUBLASLT_MATMUL_DESC_TRANSA), tb = o.transposed(CUBLASLT_MATMUL_DESC_TRANSB);
    const std::uint64_t m = ta ? a.columns : a.rows, k = ta ? a.rows : a.columns;
    const std::uint64_t k_of_b = tb ? b.columns : b.rows, n = tb ? b.rows : b.columns;
    return real(a) && real(b) && real(c) && real(d) && m == d.rows && n == d.columns && k == k_of_b &&
           c.rows == d.rows && c.columns == d.columns && a.count() == d.count() && b.count() == d.count() &&
           c.count() == d.count() && a.type == b.type && c.type == d.type &&
           (d.type == a.type || d.type == CUDA_R_32F) &&
           (!o.has_bias() || o.get<std::int32_t>(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, -1) == d.type);
}

int size_of(cudaDataType type) {
    return type == CUDA_R_32F ? 4 : 2;
}

/** Whether the alignments asked with are those of all rows, and d's is c's. */
bool true_alignments(const std::uint32_t (&alignments)[4], const Layout *const (&layouts)[4]) {
    for (int i = 0; i < 4; i++) {
        const Layout &l = *layouts[i];
        if (l.pitch * size_of(l.type) % alignments[i] != 0 || l.step() * size_of(l.type) % alignments[i] != 0) {
            return false;
        }
    }
    return alignments[2] == alignments[3];
}

bool aligned(const void *data, std::uint32_t alignment) {
    return reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
}

template<typename T>
T *of(void *handle) {
    return reinterpret_cast<T *>(handle);
}

template<typename Handle, typename T>
cublasStatus_t give(Handle *handle, T *made) {
    *handle = reinterpret_cast<Handle>(made);
    objects++;
    return CUBLAS_STATUS_SUCCESS;
}

template<typename T>
cublasStatus_t destroy(void *handle) {
    delete of<T>(handle);
    objects--;
    return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

/** For tests: products and questions so far, and objects that have been made and not destroyed. */
long stand_in_products() {
    return products;
}
long stand_in_heuristics() {
    return heuristics;
}
long stand_in_objects() {
    return objects;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    if (fails("cublasLtCreate")) {
        return CUBLAS_STATUS_ALLOC_FAILED;
    }
    static int there;
    *handle = reinterpret_cast<cublasLtHandle_t>(&there);
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
    return status == CUBLAS_STATUS_ALLOC_FAILED       ? "the resource allocation failed"
           : status == CUBLAS_STATUS_EXECUTION_FAILED ? "the function failed to launch on the GPU"
           : status == CUBLAS_STATUS_INVALID_VALUE    ? "an unsupported value or parameter was passed to the function"
                                                      : "an error of the stand-in";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *operation, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return give(operation, new Operation);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
    return destroy<Operation>(operation);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, std::size_t size) {
    return of<Operation>(operation)->set(attribute, value, size);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t pitch) {
    auto *const made = new Layout;
    made->type = type;
    made->rows = rows;
    made->columns = columns;
    made->pitch = pitch;
    return give(layout, made);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    return destroy<Layout>(layout);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                std::size_t size) {
    return of<Layout>(layout)->set(attribute, value, size);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
    return give(preference, new Attributes);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    return destroy<Attributes>(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    std::size_t size) {
    return of<Attributes>(preference)->set(attribute, value, size);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t *results, int *count) {
    heuristics++;
    *count = 0;
    if (fails("cublasLtMatmulAlgoGetHeuristic")) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    const Layout *const layouts[] = {of<Layout>(a), of<Layout>(b), of<Layout>(c), of<Layout>(d)};
    if (requested < 1 || !fit(*of<Operation>(operation), *layouts[0], *layouts[1], *layouts[2], *layouts[3])) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    const Attributes &p = *of<Attributes>(preference);
    // These keep parts of sums in the type of the result.
    constexpr unsigned in_result = CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    const auto reductions =
        p.get<std::uint32_t>(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_MASK);
    if (layouts[3]->type != CUDA_R_32F && (reductions & in_result) != 0) {
        std::fputs("cuBLASLt's stand-in: parts of sums may be kept in 16 bits\n", stderr);
        std::abort();
    }
    auto *const promise = new Promise;
    for (int i = 0; i < 4; i++) {
        promise->layouts[i] = *layouts[i];
        promise->alignments[i] = p.get<std::uint32_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i, 256);
    }
    promise->workspace = p.get<std::uint64_t>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 0);
    if (!true_alignments(promise->alignments, layouts)) {
        std::fputs("cuBLASLt's stand-in: rows do not begin at the alignments that were asked with\n", stderr);
        std::abort();
    }
    // Tensor cores want operands that start at multiples of 16 bytes, and so do their rows: otherwise there is nothing.
    for (int i = 0; i < 2 && layouts[i]->type != CUDA_R_32F; i++) {
        if (promise->alignments[i] % 16 != 0) {
            delete promise;
            return CUBLAS_STATUS_NOT_SUPPORTED;
        }
    }
    promises.push_back(promise);
    results[0] = {};
    const std::uint64_t number = promises.size() - 1;
    std::memcpy(&results[0].algo, &number, sizeof number);
    results[0].workspaceSize = static_cast<std::size_t>(promise->workspace);
    results[0].state = CUBLAS_STATUS_SUCCESS;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              std::size_t workspace_bytes, cudaStream_t) {
    if (fails("cublasLtMatmul")) {
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    const Operation &o = *of<Operation>(operation);
    const Layout &la = *of<Layout>(a_layout), &lb = *of<Layout>(b_layout), &lc = *of<Layout>(c_layout),
                 &ld = *of<Layout>(d_layout);
    std::uint64_t number;
    std::memcpy(&number, algorithm, sizeof number);
    if (!fit(o, la, lb, lc, ld) || number >= promises.size()) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    const Promise &promise = *promises[number];
    const Layout *const layouts[] = {&la, &lb, &lc, &ld};
    const void *const data[] = {a, b, c, d};
    for (int i = 0; i < 4; i++) {
        if (!promise.layouts[i].same_as(*layouts[i]) || !aligned(data[i], promise.alignments[i])) {
            return CUBLAS_STATUS_INVALID_VALUE;
        }
    }
    if (workspace_bytes < promise.workspace || !aligned(workspace, 256)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    // What was there is gone.
    std::memset(workspace, 0xff, 4096);
    std::memset(static_cast<char *>(workspace) + workspace_bytes - 4096, 0xff, 4096);
    const bool ta = o.transposed(CUBLASLT_MATMUL_DESC_TRANSA), tb = o.transposed(CUBLASLT_MATMUL_DESC_TRANSB);
    const float factor = *static_cast<const float *>(alpha), keep = *static_cast<const float *>(beta);
    const void *const bias = o.has_bias() ? o.get<const void *>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr) : nullptr;
    const std::uint64_t depth = ta ? la.rows : la.columns;
    for (std::int32_t batch = 0; batch < ld.count(); batch++) {
        for (std::uint64_t n = 0; n < ld.columns; n++) {
            for (std::uint64_t m = 0; m < ld.rows; m++) {
                float sum = 0;
                for (std::uint64_t k = 0; k < depth; k++) {
                    const std::int64_t i =
                        static_cast<std::int64_t>(ta ? k : m) + static_cast<std::int64_t>(ta ? m : k) * la.pitch;
                    const std::int64_t j =
                        static_cast<std::int64_t>(tb ? n : k) + static_cast<std::int64_t>(tb ? k : n) * lb.pitch;
                    sum = std::fma(element(la.type, a, batch * la.step() + i),
                                   element(lb.type, b, batch * lb.step() + j), sum);
                }
                const std::int64_t row = static_cast<std::int64_t>(m), column = static_cast<std::int64_t>(n);
                float value = factor * sum;
                if (keep != 0 && c == d) {
                    value = rounded(ld.type, value);
                }
                if (keep != 0) {
                    value += keep * element(lc.type, c, batch * lc.step() + row + column * lc.pitch);
                }
                if (bias) {
                    value += element(ld.type, bias, row);
                }
                store(ld.type, d, batch * ld.step() + row + column * ld.pitch, value);
            }
        }
    }
    products++;
    return CUBLAS_STATUS_SUCCESS;
}
}
