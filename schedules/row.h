// The row family: reductions over each row, a few numbers per row made of them, then one pass that writes the row.
#ifndef HALYARD_SCHEDULES_ROW_H
#define HALYARD_SCHEDULES_ROW_H

#include <vector>

#include "Halide.h"
#include "schedules/row_reduction.h"

namespace halyard::schedules {

/** Parameters, set per kernel and instruction set by schedules/tuned. */
struct RowParams {
    Halide::GeneratorParam<int> vectors{"vectors", 4};  // vectors of a row written per iteration of the last pass
    Halide::GeneratorParam<int> rows{"rows", 1};  // rows computed side by side, where the number of rows is a multiple
    Halide::GeneratorParam<int> passes{"passes",
                                       0};  // over a row, each with a part of the lanes; 0: as registers allow
};

struct Row {
    Halide::Func y;  // y(d, t)
    Halide::Var d, t;
    std::vector<RowReduction> reductions;  // in the order in which they are computed
    std::vector<Halide::Func> scalars;     // f(t): computed once per row
    int sums = 0;                          // sums over rows that y continues besides, in an update
    Halide::Func pairs{};  // pairs(d, t): where it is defined, what y is made of if its width is a multiple of 64
    Halide::Func
        first{};  // first(d, t), on GPUs: where it is defined, computed for each vector of y before that is written
    std::vector<Halide::Func> staged{};  // staged(d, t), on GPUs: computed once for a row, and kept in shared memory
};

/** The definition of y that writes rows. */
inline Halide::Stage last_stage(const Row &stages) {
    Halide::Func y = stages.y;
    return stages.sums > 0 ? y.update(0) : Halide::Stage(y);
}

/** y is the result of the pipeline, and may take the place of an input. */
void row(const Row &stages, const RowParams &params, const Halide::Target &target, const Halide::Pipeline &pipeline);

/** The reductions alone: y(d, t) holds a few numbers per row. */
void row_statistics(const Row &stages, const RowParams &params, const Halide::Target &target);

}  // namespace halyard::schedules

#endif
