// The column_reduction family: sums of a matrix over its rows, column by column.
//
// Rows come in blocks of a fixed number. A block's sum begins at +0, or at what it continues, and takes its rows in order. Every
// column has an accumulator of its own, so the sums have the same bits whatever the vectors, and whoever computes which block.
// They lie on the stack, so a kernel takes at most column_sum_columns columns.
#ifndef HALYARD_SCHEDULES_COLUMN_REDUCTION_H
#define HALYARD_SCHEDULES_COLUMN_REDUCTION_H

#include <functional>

#include "Halide.h"
#include "runtime/layout/column_sum.h"

namespace halyard::schedules {

/** Parameters, set per kernel and instruction set by schedules/tuned. */
struct ColumnReductionParams {
    Halide::GeneratorParam<int> vectors{"vectors", 8};  // of columns, whose accumulators are in registers at a time
    Halide::GeneratorParam<int> rows{"rows", 8};        // that are added before the next columns
};

struct ColumnReduction {
    Halide::Func sum{"sum"};  // sum(column, block), its update over the rows of the block
    Halide::Func sums;        // sums(column, block), the same, the result of the pipeline
    Halide::Var column{"column"}, block{"block"};
    Halide::RDom row{0, column_sum_rows, "row"};  // of a block
    Halide::Expr columns;                         // how many there are
    Halide::Expr continues;                       // whether the sums begin at what they continue
};

/** Adds element(column, row), in f32, of `rows` rows. `so_far`: so_far(column, block), which is read only where `continues` holds,
 *  and may lie where the sums go. */
inline ColumnReduction
reduce_columns(const Halide::Func &sums, const Halide::Expr &columns, const Halide::Expr &rows,
               const Halide::Func &so_far, const Halide::Expr &continues,
               const std::function<Halide::Expr(const Halide::Expr &column, const Halide::Expr &row)> &element) {
    using namespace Halide;
    ColumnReduction r;
    r.sums = sums;
    r.columns = columns;
    r.continues = continues;
    const Expr row = r.block * column_sum_rows + r.row;
    r.row.where(row < rows);
    r.sum(r.column, r.block) = select(continues, so_far(r.column, r.block), 0.0f);
    r.sum(r.column, r.block) = strict_float(r.sum(r.column, r.block) + element(r.column, row));
    r.sums(r.column, r.block) = r.sum(r.column, r.block);
    return r;
}

void column_reduction(const ColumnReduction &stages, const ColumnReductionParams &params, const Halide::Target &target);

}  // namespace halyard::schedules

#endif
