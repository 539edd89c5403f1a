// Sums over the rows of a matrix, column by column, as the gradients of biases and of the weights of norms are.
#ifndef HALYARD_RUNTIME_CPU_OPS_COLUMN_SUM_H
#define HALYARD_RUNTIME_CPU_OPS_COLUMN_SUM_H

#include "core/cast.h"
#include "core/context.h"
#include "layout/column_sum.h"

namespace halyard {

/** Floats of memory that column_sums() takes for the sums of the blocks. */
constexpr int64_t column_sum_partials(int64_t rows, int64_t columns) {
    return (rows + column_sum_rows - 1) / column_sum_rows * columns;
}

/** sums(column) = the sum of x over its rows, of `columns` floats: b0 + b1 + ..., from left to right, b being the sums of blocks
 *  of column_sum_rows rows, each from +0 and row by row. So no sum is -0, and bits do not depend on threads. With `accumulate` it
 *  is sums + b0 + b1 + ... instead: rows that come in several calls, cut between blocks, make the bits of one call. */
void column_sums(const halyard_context &context, halyard_isa isa, const TypedRows &x, int64_t rows, int64_t columns,
                 float *partials, float *sums, bool accumulate);

}  // namespace halyard

#endif
