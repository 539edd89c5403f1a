// A machine that executes PTX on the processor, one block of threads after the other: the part of the language that
// Halide writes, with the roundings, shuffles and accesses of the real one.
#ifndef HALYARD_TESTS_CUDA_PTX_H
#define HALYARD_TESTS_CUDA_PTX_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace halyard::tests::ptx {

struct Program;

/** The kernel of this name in a text; null if there is none. What the machine does not know ends the process with a
 * message, here or in run(). */
std::shared_ptr<const Program> parse(const std::string &text, const std::string &kernel);

/** Runs it to the end, as cuLaunchKernel() does. Ends the process with a message where a device would not go on: at an
 * access that is not aligned, one to shared memory beyond its end, a shuffle with a thread that is elsewhere. */
void run(const Program &program, const unsigned (&grid)[3], const unsigned (&block)[3], std::size_t shared_bytes,
         void *const *parameters);

}  // namespace halyard::tests::ptx

#endif
