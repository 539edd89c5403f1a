// From a choice of parameters to a kernel that can be called, in this process.
//
// A candidate is compiled to the very object that the build would link, byte for byte (a matrix product by way of
// assembly, as there), and loaded. Halide's own just-in-time compiler would time other code: it leaves the prefetches
// of the products as they are, and wraps every call in checks that the library does not have.
#ifndef HALYARD_TUNE_COMPILE_H
#define HALYARD_TUNE_COMPILE_H

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/temporary_folder.h"
#include "space.h"

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

struct Compiled {
    std::string object, failure;  // one of them
};

/** That no files can be made any more, which says nothing about a candidate. */
struct NoRoom : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/** All of its functions throw NoRoom. */
class Compiler {
public:
    Compiler();
    Compiler(const Compiler &) = delete;
    Compiler &operator=(const Compiler &) = delete;

    /** The object file of a variant, as bytes. Throws std::runtime_error with Halide's message if it refuses. */
    std::string object(const Variant &variant, const Choice &choice);
    /** Several at the same time. */
    std::vector<Compiled> objects(const Variant &variant, const std::vector<Choice> &choices);
    /** An object file, loaded; every call loads another copy. */
    std::unique_ptr<Loaded> load(const std::string &object, const std::string &symbol);

private:
    /** Throws NoRoom if it is so. */
    void require_room() const;

    bench::TemporaryFolder folder;  // of files that live as long as one call
    std::string directory;
    int loads = 0;
};

/** "21.0.0" */
std::string halide_version();

}  // namespace halyard::tune

#endif
