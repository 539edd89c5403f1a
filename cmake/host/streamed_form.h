// The streamed form of a kernel of x86 writes around the caches. It is made of the kernel's assembly, since Halide has no non-temporal
// stores, and computes the same by the same instructions.
#ifndef HALYARD_CMAKE_HOST_STREAMED_FORM_H
#define HALYARD_CMAKE_HOST_STREAMED_FORM_H

#include <string>

namespace halyard::host {

/** The text that follows `assembly`, the kernel `symbol`, and defines SYMBOL_streamed. Stores of whole vectors are non-temporal there, so
 *  that they must be aligned, and before each load its line `prefetch_bytes` further on is prefetched, unless that is 0. The rest of a
 *  row, which is masked, and the stack are written as ever. Where vectors are stored by instructions that convert them
 *  too, or in several widths, it is the kernel itself. */
std::string streamed_form(const std::string &assembly, const std::string &symbol, int prefetch_bytes);

}  // namespace halyard::host

#endif
