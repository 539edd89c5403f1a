// Kernels that Halide made for OpenCL, executed on the processor by PoCL.
#ifndef HALYARD_TESTS_CUDA_STAND_IN_OPENCL_H
#define HALYARD_TESTS_CUDA_STAND_IN_OPENCL_H

#include <cstddef>
#include <memory>
#include <string>

namespace halyard::tests::opencl {

struct Kernel;

/** The kernel of an OpenCL source, which has one beside Halide's empty one. Ends the process with a message where there
 * is none. */
std::shared_ptr<const Kernel> compile(const std::string &path);

/** Runs it to the end, as cuLaunchKernel() does; false where OpenCL refuses. */
bool run(const Kernel &kernel, const unsigned (&grid)[3], const unsigned (&block)[3], std::size_t shared_bytes,
         void *const *parameters);

}  // namespace halyard::tests::opencl

#endif
