// The calls of the library by which choices are judged: the rows of the benchmark suite with its operands, and a few more for
// kernels that no row of it reaches. Which calls a kernel takes part in is found out by making them.
#ifndef HALYARD_TUNE_TUNING_CASES_H
#define HALYARD_TUNE_TUNING_CASES_H

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "case_families.h"
#include "mutable_dispatch_table.h"

namespace halyard::tune {

/** One call: one of a family on a shape. */
struct TuningCase {
    const CaseFamily *family;
    bench::CaseId id;

    std::string name() const { return id.name(); }
};

/** "64x4096,2048x8192/cold,8x4096x11008" as shapes. Throws std::invalid_argument. `large`: those out of cache too. */
std::vector<Shape> shapes_named(const std::string &text, bool large);

/** Finds the calls that a kernel takes part in. */
class CaseFinder {
public:
    CaseFinder(int thread_count, std::size_t cold_bytes) : threads(thread_count), cold_set(cold_bytes) {}

    /** The calls by which to judge a variant, on those shapes; empty if no call reaches it. */
    std::vector<TuningCase> tuning_cases(const Variant &variant, const std::vector<Shape> &shapes);
    /** The same on small odd shapes, to see whether its results are right. */
    std::vector<TuningCase> checks(const Variant &variant);

    std::unique_ptr<bench::BenchmarkCase> make(const TuningCase &tuning_case, const std::string &isa) const;

private:
    /** A family and the rows and inputs, of what was tried, of its calls that reach a variant. */
    struct Reach {
        const CaseFamily *family = nullptr;
        std::size_t kernels = 0;  // that these calls are made of
        std::vector<std::int64_t> rows;
        std::int64_t least_d = 0;
    };
    using Reaches = std::map<int, Reach>;  // by index

    const Reach *reach_of(const Variant &variant);
    Reaches explore(const std::string &dtype, const std::string &isa) const;

    int threads;
    std::size_t cold_set;
    std::map<std::string, Reaches> explored;  // by type and instruction set
};

/** Calls by which to judge a group of the runtime's parameters. `last_level`: bytes of the largest cache. */
std::vector<TuningCase> runtime_cases(const std::string &group, int threads, std::int64_t last_level);
/** Small odd ones, to see whether results are right. */
std::vector<TuningCase> runtime_checks(const std::string &group);

/** The instruction set of that name as the library counts them. */
halyard_isa isa_named(const std::string &name);

}  // namespace halyard::tune

#endif
