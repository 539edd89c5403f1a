// halyard-count: calls every row of the work list "count" once under callgrind, with AVX2 on one thread, and what the
// tuner calls to reach the kernels that no row does.
//
// count.py runs it and makes instructions per element of what callgrind writes. Such counts have no noise: they show on
// any machine whether the compiled kernels have become longer. A build with the schedule parameters of one machine has other
// kernels, so it counts nothing.
#include <valgrind/callgrind.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmark_case.h"
#include "schedules/tune/case_families.h"
#include "work_list.h"

namespace halyard::bench {
namespace {

std::vector<CaseId> all_calls() {
    std::vector<CaseId> calls = read_work_list("count", HALYARD_BENCH_SHAPES_DIR, 1);
    const std::vector<tune::Shape> layer_shape = {{6, 64, 96}}, tensor_shape = {{48, 80}};
    for (const tune::CaseFamily &family : tune::unbenched_families()) {
        const Kernel &kernel = family.kernel;
        for (const Dtype dtype : operations::all_dtypes) {
            for (const tune::Shape &shape : kernel.layer            ? layer_shape
                                            : family.checks.empty() ? tensor_shape
                                                                    : family.checks) {
                calls.push_back({&kernel, dtype, shape.rows, shape.d, false, 1, shape.d_out});
            }
        }
    }
    return calls;
}

/** Every call of which the number is `part` modulo `parts`. */
void count(std::size_t part, std::size_t parts) {
    const std::vector<CaseId> calls = all_calls();
    std::vector<std::unique_ptr<BenchmarkCase>> bench_cases;
    for (std::size_t i = part; i < calls.size(); i += parts) {
        bench_cases.push_back(std::make_unique<BenchmarkCase>(calls[i], 0, HALYARD_ISA_AVX2));
        bench_cases.back()->call(0);  // scratch memory is there, dispatch is done
    }
    // Once for all: whenever it starts, callgrind translates the program anew.
    CALLGRIND_START_INSTRUMENTATION;
    for (const auto &bench_case : bench_cases) {
        const CaseId &id = bench_case->id;
        const std::string name = id.name();
        CALLGRIND_ZERO_STATS;
        bench_case->call(0);
        CALLGRIND_DUMP_STATS_AT(name.c_str());
        // Elements of y.
        std::printf("%s %lld\n", name.c_str(), static_cast<long long>(id.rows * id.output_width()));
    }
    CALLGRIND_STOP_INSTRUMENTATION;
}

}  // namespace
}  // namespace halyard::bench

// halyard-count PART PARTS: so that several processes share the work.
int main(int argument_count, char **arguments) {
    if (HALYARD_TUNED_FILE[0] != '\0') {
        std::fputs(
            "halyard-count: this build has the schedule parameters of " HALYARD_TUNED_FILE
            ", and the counts are those of the parameters for any machine: ./run bench --count, which builds with "
            "HALYARD_TUNED=none, makes them\n",
            stderr);
        return 2;
    }
    if (halyard_isa_supported(HALYARD_ISA_AVX2) == 0) {
        std::fputs("halyard-count: this machine has no AVX2, whose kernels are counted\n", stderr);
        return 2;
    }
    const int part = argument_count == 3 ? std::atoi(arguments[1]) : 0;
    const int parts = argument_count == 3 ? std::atoi(arguments[2]) : argument_count == 1 ? 1 : 0;
    if (part < 0 || part >= parts) {
        std::fputs("halyard-count: takes nothing, or PART and PARTS, where PART is from 0 to PARTS - 1\n", stderr);
        return 2;
    }
    try {
        halyard::bench::count(static_cast<std::size_t>(part), static_cast<std::size_t>(parts));
    } catch (const std::exception &error) {
        std::fprintf(stderr, "halyard-count: %s\n", error.what());
        return 1;
    }
    return 0;
}
