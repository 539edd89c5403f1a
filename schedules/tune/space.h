// What can be chosen: for the schedules of kernels by the build's lists of kernels and search spaces, for the runtime by
// runtime/core/parameters.inc; and what holds where nothing is chosen.
#ifndef HALYARD_TUNE_SPACE_H
#define HALYARD_TUNE_SPACE_H

#include <string>
#include <vector>

#include "schedules/search_space.h"

namespace halyard::tune {

using schedules::Choice;
using schedules::SearchSpace;

/** A line of kernels.cmake. */
struct KernelInfo {
    std::string name, family, generator;
    std::string program;                            // that has the generator, as a path
    std::map<std::string, std::string> parameters;  // that make it

    bool is_matmul() const { return family.rfind("matmul", 0) == 0; }
};

const std::vector<KernelInfo> &kernel_table();
/** Null if there is none of that name. */
const KernelInfo *find_kernel(const std::string &name);

/** One object of the library. */
struct Variant {
    int index;  // in the dispatch table
    const KernelInfo *kernel;
    std::string dtype, isa;

    /** The function it defines, "hk_silu_f32_avx2". */
    std::string symbol() const { return "hk_" + kernel->name + "_" + dtype + "_" + isa; }
    /** "silu f32 avx2" */
    std::string name() const { return kernel->name + " " + dtype + " " + isa; }
    /** As cmake/HalyardKernels.cmake gives it to the generator. */
    std::string halide_target() const;
    /** What the assembler is told, if the instruction set needs that; else nothing. */
    std::vector<std::string> assembler_flags() const;
    /** How many bytes ahead its streamed form prefetches; empty if it has none. */
    std::string streamed_prefetch() const;
    /** The parameters that make it, dtype among them. */
    std::map<std::string, std::string> parameters() const;
    /** Its family's space; null if there is nothing to choose. */
    const SearchSpace *space() const;
    /** What its choices are judged by on a machine with these caches. */
    schedules::TargetInfo target_info(std::int64_t l1, std::int64_t l2) const;
    /** A value for every parameter of its space, as on any machine (schedules/tuned/x86-64.json). */
    Choice defaults() const;
};

/** All that the build has. */
const std::vector<Variant> &all_variants();

/** The space of each group of the runtime's parameters. */
const std::vector<SearchSpace> &runtime_spaces();
/** What a space names as its default values. */
Choice defaults_of(const SearchSpace &space);
/** Sets parameters of the runtime that is linked with the tuner, and leaves the others. */
void set_runtime(const Choice &choice);

/** "vectors=2 rows=1" */
std::string text_of(const Choice &choice);
/** "vectors 1, 2, 4; rows 1, 2" */
std::string text_of(const SearchSpace &space);
/** "default" or "vectors=4,rows=1" as a choice. Throws std::invalid_argument with a sentence that lists what there is. */
Choice choice_named(const std::string &text, const Choice &defaults, const SearchSpace &space);

}  // namespace halyard::tune

#endif
