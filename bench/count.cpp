// halyard-count: calls every row of the catalogues once under callgrind, with AVX2 on one thread, at fixed sizes.
//
// count.py runs it and makes instructions per element of what callgrind writes. Such counts have no noise: they show on
// any machine whether the compiled kernels have become longer.
#include <valgrind/callgrind.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

#include "work.h"

namespace halyard::bench {
namespace {

// Rows and widths of the elementwise and row kernels: long rows, and rows that no vector divides.
constexpr std::int64_t shapes[][2] = {{4, 1024}, {7, 67}};

// Rows, d and d_out of the layers: one row, a whole tile, and several tiles; features that no panel divides.
constexpr std::int64_t layer_shapes[][3] = {{1, 256, 96}, {6, 256, 96}, {32, 256, 96}, {5, 131, 77}};

void count(const WorkId &id) {
    Work work(id, 0, HALYARD_ISA_AVX2);
    const std::string name = id.name();
    work.call(0);  // scratch memory is there, dispatch is done
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
    work.call(0);
    CALLGRIND_DUMP_STATS_AT(name.c_str());
    CALLGRIND_STOP_INSTRUMENTATION;
    // Elements of y.
    std::printf("%s %lld\n", name.c_str(), static_cast<long long>(id.rows * id.output_width()));
}

void count_all() {
    for (const Kernel &kernel : catalogue()) {
        for (const Dtype dtype : tests::all_dtypes) {
            for (const auto &[rows, d] : shapes) {
                if (kernel.cast_to != dtype) {
                    count({&kernel, dtype, rows, d, false, 1});
                }
            }
        }
    }
    for (const Kernel &kernel : layer_catalogue()) {
        for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
            for (const auto &[rows, d, d_out] : layer_shapes) {
                count({&kernel, dtype, rows, d, false, 1, d_out});
            }
        }
    }
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
