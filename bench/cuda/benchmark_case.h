// What is measured: an operation at a shape, on as many sets of operands as the caches cannot hold.
#ifndef HALYARD_BENCH_CUDA_BENCHMARK_CASE_H
#define HALYARD_BENCH_CUDA_BENCHMARK_CASE_H

#include <memory>
#include <string>
#include <vector>

#include "cuda.h"
#include "halyard/halyard.h"

namespace halyard::bench::cuda {

/** A line of the plan. */
struct CaseId {
    std::string
        operation;  // of operations/: any on tensors of rows, any layer; ffn_swiglu with norm and residual; attention
    std::string dtype;         // f32, f16, bf16
    std::int64_t rows, width;  // of attention: queries, positions
    std::int64_t hidden = 0;   // of networks; outputs of linear layers; heads of attention

    std::string name() const;
};

/** The plan: one case a line, "operation dtype rows width [hidden]"; # begins a comment. */
std::vector<CaseId> read_plan(const std::string &path);

class BenchmarkCase {
public:
    virtual ~BenchmarkCase() = default;
    /** Bytes of the operands that a call reads and writes, each counted once; bytes of those that differ from set to set. */
    std::int64_t model_bytes = 0, set_bytes = 0;
    double flops = 0;  // of matrix products, where a mask is at what it leaves
    /** Operands in memory of the device; the first call must have been made before others are captured. */
    virtual void make_sets(Gpu &gpu, int count) = 0;
    virtual void call(const halyard_context *context, int set) = 0;
};

/** Null where the operation is none that is known. */
std::unique_ptr<BenchmarkCase> make_case(const CaseId &c);

}  // namespace halyard::bench::cuda

#endif
