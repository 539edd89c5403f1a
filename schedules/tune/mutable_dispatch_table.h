// The mutable dispatch table of the library that the tuner is linked with: every kernel in it can be exchanged.
//
// The tuner does not time kernels by themselves: it times calls of the library, with its blocking, threads and
// streaming, in which one kernel is a candidate and all others are as they usually are. For that it links the runtime
// of the library with entry points of its own in place of the generated kernels.
#ifndef HALYARD_TUNE_MUTABLE_DISPATCH_TABLE_H
#define HALYARD_TUNE_MUTABLE_DISPATCH_TABLE_H

#include <functional>
#include <set>

#include "compile.h"
#include "halyard/halyard.h"

namespace halyard::tune {

/** What is asked for the function of an index when it is called for the first time. */
void set_resolver(std::function<KernelForms(int index)> resolver);

/** Puts a kernel into the table; without one the resolver is asked again. */
void set_kernel(int index, const KernelForms &forms);

/** Whether calls on `isa`, one that the build has, use this kernel: it is its own, or one that it shares. */
bool has_kernel(halyard_isa isa, const Variant &variant);

/** How wide the tiles of a matmul kernel are: the code around the kernel has to know. */
void set_tile_panels(const Variant &variant, int panels);

/** The indices of the kernels that `call` calls. Nothing is computed meanwhile: what it calls returns at once. */
std::set<int> kernels_called_by(const std::function<void()> &call);

}  // namespace halyard::tune

#endif
