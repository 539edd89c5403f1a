// The kernels as the tuner knows them: the table of kernels, and the parameters that a build without a tuned file gives
// them.
#ifndef HALYARD_TUNE_KERNELS_H
#define HALYARD_TUNE_KERNELS_H

#include <string>
#include <vector>

#include "schedules/search_space.h"

namespace halyard::tune {

using schedules::Choice;
using schedules::SearchSpace;

/** A line of kernels.cmake. */
struct KernelInfo {
    std::string name, family, generator;
    std::map<std::string, std::string> parameters;  // that make it
};

const std::vector<KernelInfo> &kernel_table();
/** Null if there is none of that name. */
const KernelInfo *find_kernel(const std::string &name);
const std::vector<std::string> &isa_names();
const std::vector<std::string> &dtype_names();

/** One object of the library. */
struct Variant {
    const KernelInfo *kernel;
    std::string dtype, isa;

    /** The function it defines, "hk_silu_f32_avx2". */
    std::string symbol() const { return "hk_" + kernel->name + "_" + dtype + "_" + isa; }
    /** "silu f32 avx2" */
    std::string name() const { return kernel->name + " " + dtype + " " + isa; }
    /** As cmake/HalyardKernels.cmake gives it to the generator. */
    std::string halide_target() const;
    /** The parameters that make it, dtype among them. */
    std::map<std::string, std::string> parameters() const;
    /** Its family's space; null if there is nothing to choose. */
    const SearchSpace *space() const;
    /** What its choices are judged by on a machine with these caches. */
    schedules::TargetInfo target_info(std::int64_t l1, std::int64_t l2) const;
};

/** The parameters for any machine (schedules/tuned/x86-64.json). */
class DefaultParameters {
public:
    /** Throws std::runtime_error if the file cannot be read. */
    explicit DefaultParameters(const std::string &file);

    /** Those that the file names, as the build passes them on. */
    Choice named(const Variant &variant) const;
    /** All parameters of the variant's space. */
    Choice complete(const Variant &variant) const;

private:
    std::map<std::string, std::map<std::string, Choice>> entries;  // [isa][key]
};

/** "vectors=2 rows=1" */
std::string text_of(const Choice &choice);

}  // namespace halyard::tune

#endif
