// From a choice of parameters to a kernel that can be called, in this process.
//
// A candidate is compiled to the very object that the build would link, byte for byte (a matrix product by way of
// assembly, as there), and loaded. Halide's own just-in-time compiler would time other code: it leaves the prefetches
// of the products as they are, and wraps every call in checks that the library does not have.
#ifndef HALYARD_TUNE_COMPILE_H
#define HALYARD_TUNE_COMPILE_H

#include <memory>
#include <string>
#include <vector>

#include "bench/temporary_folder.h"
#include "space.h"

namespace halyard::tune {

using KernelFunction = int (*)(void **arguments);

/** The entry points of a kernel: `streamed` is that of its form that writes around the caches, null if it has none. */
struct KernelForms {
    KernelFunction ordinary = nullptr, streamed = nullptr;
};

/** A kernel, which goes with its library. */
struct Loaded {
    std::shared_ptr<void> library;
    KernelForms forms;
};

struct Compiled {
    std::string object, failure;  // one of them
};

class Compiler {
public:
    Compiler();

    /** Object files as bytes, compiled as many at a time as there are processors; for a choice that Halide refuses its message. Throws std::runtime_error
     *  on a full disk, which says nothing about a choice. */
    std::vector<Compiled> objects(const Variant &variant, const std::vector<Choice> &choices);
    /** One of them. Throws std::runtime_error with Halide's message if it refuses. */
    std::string object(const Variant &variant, const Choice &choice);
    /** An object file, loaded; every call loads another copy. */
    Loaded load(const std::string &object, const std::string &symbol);

private:
    /** Throws std::runtime_error if no files can be written any more. */
    void require_room() const;

    const bench::TemporaryFolder folder;
    int loads = 0;
};

/** "21.0.0" */
std::string halide_version();

}  // namespace halyard::tune

#endif
