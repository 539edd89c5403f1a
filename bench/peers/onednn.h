// What the files of the peer "onednn" share.
#ifndef HALYARD_BENCH_PEERS_ONEDNN_H
#define HALYARD_BENCH_PEERS_ONEDNN_H

#include <oneapi/dnnl/dnnl.hpp>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "benchmark_case.h"

namespace halyard::bench {

using DnnlArguments = std::unordered_map<int, dnnl::memory>;

/** One primitive with its arguments for each operand set. */
struct DnnlStep {
    dnnl::primitive primitive;
    std::string implementation;  // oneDNN's name of it, such as "jit:avx2"
    std::vector<DnnlArguments> arguments;
    std::vector<std::shared_ptr<void>> owned;  // memory of the arguments that is nobody else's
};

dnnl::memory::data_type dnnl_type(Dtype dtype);

/** oneDNN's memory on a tensor. */
dnnl::memory dnnl_memory(const dnnl::engine &engine, const Matrix &matrix);

/** LayerNorm or RMSNorm with the work's parameters, from each of `x` to each of `y`. Empty, with a reason, if this
 * version has none. */
std::vector<DnnlStep> norm_step(const dnnl::engine &engine, const BenchmarkCase &bench_case, bool rms,
                                const std::vector<dnnl::memory> &x, const std::vector<dnnl::memory> &y,
                                std::string &reason);

/** The primitives of a layer; none, with a reason, if there are none. */
std::vector<DnnlStep> layer_steps(const dnnl::engine &engine, BenchmarkCase &bench_case, std::string &reason);

}  // namespace halyard::bench

#endif
