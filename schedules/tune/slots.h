// The mutable dispatch table of the library that the tuner is linked with: the kernel of every slot can be exchanged.
//
// The tuner does not time kernels by themselves: it times calls of the library, with its blocking, threads and
// streaming, in which one kernel is a candidate and all others are as they usually are. For that it links the runtime
// of the library with entry points of its own in place of the generated kernels.
#ifndef HALYARD_TUNE_SLOTS_H
#define HALYARD_TUNE_SLOTS_H

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "compile.h"

namespace halyard::tune {

/** The number of a variant in the dispatch table; -1 if its instruction set does not have it or has that of another. */
int slot_of(const Variant &variant);
Variant variant_of(int slot);

/** The instruction sets whose kernels `isa` has: itself and those with which it shares some. */
std::set<std::string> isas_with_kernels_of(const std::string &isa);

/** What is asked for the function of a slot when it is called for the first time. */
void set_resolver(std::function<KernelFunction(int slot)> resolver);

/** Puts a kernel into the table. */
void set_slot(int slot, KernelFunction function);
/** Empties it: the resolver is asked again. */
void clear_slot(int slot);

/** How wide the tiles of a matmul kernel are: the code around the kernel has to know. */
void set_tile_panels(const Variant &variant, int panels);

/** The slots that `work` calls. Nothing is computed meanwhile: what it calls returns at once. */
std::vector<int> slots_called_by(const std::function<void()> &work);

}  // namespace halyard::tune

#endif
