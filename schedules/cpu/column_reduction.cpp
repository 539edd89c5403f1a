// Sums over rows, on processors.
#include "schedules/column_reduction.h"

#include "schedules/machine.h"
#include "schedules/search_space.h"

namespace halyard::schedules {

using namespace Halide;

namespace {

// Beside the accumulators there is room for what is widened.
const WorthCompiling choices("column_reduction", [](const Choice &choice, const TargetInfo &target) {
    return 2 * choice.at("vectors") <= target.registers;
});

}  // namespace

void column_reduction(const ColumnReduction &stages, const ColumnReductionParams &params, const Target &target) {
    const int vector = f32_lanes(target), tile_columns = vector * params.vectors;
    const Var tile("tile"), column = stages.column;
    const RVar group("group"), row = stages.row.x;
    Func sum = stages.sum, sums = stages.sums;
    // A few rows go by all their columns before the next rows: by turns with 64 rows that lie far apart, the processor would not
    // prefetch what comes next. No column is computed twice, since sums may continue in place.
    sums.vectorize(column, vector, TailStrategy::GuardWithIf);
    sum.compute_at(sums, stages.block)
        .bound_storage(column, column_sum_columns)
        .store_in(MemoryType::Stack)
        .vectorize(column, vector, TailStrategy::GuardWithIf)
        .specialize(stages.continues);
    Stage update = sum.update().split(row, group, row, params.rows);
    update.specialize(stages.columns % tile_columns == 0)
        .split(column, tile, column, tile_columns, TailStrategy::GuardWithIf)
        .reorder(column, row, tile, group)
        .vectorize(column, vector)
        .unroll(column);
    update.split(column, tile, column, vector, TailStrategy::GuardWithIf)
        .reorder(column, row, tile, group)
        .vectorize(column);
}

}  // namespace halyard::schedules
