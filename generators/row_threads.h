// The arguments that row kernels have on a GPU besides: how the threads of a block share its rows.
#ifndef HALYARD_GENERATORS_ROW_THREADS_H
#define HALYARD_GENERATORS_ROW_THREADS_H

#include "Halide.h"
#include "row_reduction.h"
#include "schedules/gpu.h"
#include "storage.h"

namespace halyard {

struct RowThreadInputs {
    Halide::GeneratorInput<int> *warps = nullptr, *rows = nullptr;

    template<typename Generator>
    void add_to(Generator &generator) {
        warps = generator.template add_input<int>("warps");
        rows = generator.template add_input<int>("rows_per_block");
    }

    RowThreads threads(DType dtype, bool words) const { return {*warps, dtype == DType::f32 ? 1 : 2, words}; }
    schedules::gpu::RowThreadParams params(bool words) const { return {*warps, *rows, words}; }
    schedules::gpu::RowThreadParams statistics_params(bool words) const { return {*warps, *rows, words, true}; }
};

}  // namespace halyard

#endif
