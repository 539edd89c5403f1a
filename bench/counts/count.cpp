// halyard-count: calls every row of the work list "count" once under callgrind, with AVX2 on one thread, and what the
// tuner calls to reach the kernels that no row does.
//
// count.py runs it and makes instructions per element of what callgrind writes. Such counts have no noise: they show on
// any machine whether the compiled kernels have become longer.
#include <valgrind/callgrind.h>

#include <cstdio>
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

// Of the calls that are in no list and bring no sizes of their own; of layers rows, inputs and outputs.
constexpr tune::RowsAndWidth usual_shape = {48, 80};
constexpr std::int64_t layer_shape[] = {6, 64, 96};

std::vector<CaseId> all_calls() {
    std::vector<CaseId> calls = read_work_list("count", HALYARD_BENCH_SHAPES_DIR, 1);
    for (const auto &kind : tune::unbenched_families()) {
        const Kernel &kernel = kind->kernel;
        for (const Dtype dtype : operations::all_dtypes) {
            if (kernel.layer) {
                const auto &[rows, d, d_out] = layer_shape;
                calls.push_back({&kernel, dtype, rows, d, false, 1, d_out});
            } else if (kind->own) {
                for (const auto &[rows, d] : kind->own->checks) {
                    calls.push_back({&kernel, dtype, rows, d, false, 1});
                }
            } else {
                calls.push_back({&kernel, dtype, usual_shape.rows, usual_shape.d, false, 1});
            }
        }
    }
    return calls;
}

void count_all() {
    std::vector<std::unique_ptr<BenchmarkCase>> bench_cases;
    for (const CaseId &id : all_calls()) {
        bench_cases.push_back(std::make_unique<BenchmarkCase>(id, 0, HALYARD_ISA_AVX2));
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

int main() {
    if (halyard_isa_supported(HALYARD_ISA_AVX2) == 0) {
        std::fputs("halyard-count: this machine has no AVX2, whose kernels are counted\n", stderr);
        return 2;
    }
    try {
        halyard::bench::count_all();
    } catch (const std::exception &error) {
        std::fprintf(stderr, "halyard-count: %s\n", error.what());
        return 1;
    }
    return 0;
}
