// The numbers that the packing kernels and the code that calls them must agree on.
#ifndef HALYARD_RUNTIME_LAYOUT_PACK_H
#define HALYARD_RUNTIME_LAYOUT_PACK_H

namespace halyard {

/** Inputs that a kernel which transposes must be given at least. */
constexpr int min_transposed_inputs = 16;

}  // namespace halyard

#endif
