// From a choice of parameters to a kernel that can be called, in this process.
//
// A candidate is compiled to the very object that the build would link, byte for byte (a matrix product by way of assembly,
// as there), and loaded. Halide's own just-in-time compiler would time other code: it leaves the prefetches of the products
// as they are, and wraps every call in checks that the library does not have.
#ifndef HALYARD_TUNE_COMPILE_H
#define HALYARD_TUNE_COMPILE_H

#include <memory>
#include <string>

#include "kernels.h"

namespace halyard::tune {

using KernelFunction = int (*)(void **arguments);

/** A loaded kernel. */
class Loaded {
public:
    /** Loads a shared object and removes its file. */
    Loaded(const std::string &file, const std::string &symbol);
    ~Loaded();
    Loaded(const Loaded &) = delete;
    Loaded &operator=(const Loaded &) = delete;

    KernelFunction function() const { return entry; }

private:
    void *handle;
    KernelFunction entry;
};

class Compiler {
public:
    Compiler();
    ~Compiler();
    Compiler(const Compiler &) = delete;
    Compiler &operator=(const Compiler &) = delete;

    /** The object file of a variant, as bytes. Throws std::runtime_error with Halide's message if it refuses. */
    std::string object(const Variant &variant, const Choice &choice);
    /** An object file, loaded; every call loads another copy. */
    std::unique_ptr<Loaded> load(const std::string &object, const std::string &symbol);

private:
    std::string directory;  // of files that live as long as one call
    int loads = 0;
};

/** "21.0.0" */
std::string halide_version();

}  // namespace halyard::tune

#endif
