// Kernels that were made before, kept by the content of all that makes them: in a folder of the user's, which every build,
// checkout and worktree shares. Nothing that goes wrong with it fails a build.
#ifndef HALYARD_HOST_KERNEL_CACHE_H
#define HALYARD_HOST_KERNEL_CACHE_H

#include <filesystem>
#include <optional>
#include <string>

namespace halyard::host {

/** Files as bytes; no assembly of a kernel that Halide writes as an object. */
struct CachedObject {
    std::string object, assembly;
};

class KernelCache {
public:
    /** In HALYARD_CACHE, else in $XDG_CACHE_HOME/halyard or ~/.cache/halyard. `off` is none. */
    KernelCache();

    /** What was stored under exactly this key, if it is undamaged. */
    std::optional<CachedObject> find(const std::string &key) const;
    /** Several builds may store at once, and be killed at it. What was used last stays: 512 MiB at most. */
    void store(const std::string &key, const CachedObject &made) const;

private:
    std::filesystem::path file_of(const std::string &key) const;

    std::filesystem::path folder;  // empty if there is none
};

/** 32 hexadecimal digits. */
std::string digest_of(const std::string &bytes);
/** A file's bytes. Throws std::runtime_error with its name. */
std::string read_file(const std::filesystem::path &file);
/** Throws std::runtime_error with the name of the file. */
void write_file(const std::filesystem::path &file, const std::string &bytes);

}  // namespace halyard::host

#endif
