// Sums over the rows of a matrix, column by column, as the gradients of biases and of the weights of norms are.
#ifndef HALYARD_RUNTIME_CPU_OPS_COLUMN_SUM_H
#define HALYARD_RUNTIME_CPU_OPS_COLUMN_SUM_H

#include "core/cast.h"
#include "core/context.h"
#include "layout/column_sum.h"

namespace halyard {

/** How many blocks of column_sum_rows rows there are; the last may be shorter. */
constexpr int64_t column_sum_blocks(int64_t rows) {
    return (rows + column_sum_rows - 1) / column_sum_rows;
}

/** Sums of rows of a dtype on the calling thread. One per task, as it holds the buffers. */
class RowSums {
public:
    RowSums(halyard_isa isa, DType dtype) : kernel_(kernel_function(kernels::column_sum, dtype, isa)) {}

    /** sums(column) = the sum of x over its rows, row by row from +0, or from what is there if it is to be continued. */
    void add(const TypedRows &x, int64_t rows, int64_t columns, float *sums, bool continues);
    /** Sums each block of rows for itself: sums(column, block), `columns` floats from one block to the next. */
    void blocks(const TypedRows &x, int64_t rows, int64_t columns, float *sums);

private:
    void call(const TypedRows &x, int64_t rows, int64_t columns, float *sums, int64_t sums_pitch, bool continues);

    const KernelCall<arguments::ColumnSum> kernel_;
    Buffer<2> x_;
    Buffer<2, float> sums_;
};

/** sums(column) = b0 + b1 + ..., from left to right, b being the sums of blocks, each from +0 and row by row: the rows of
 *  `partials`, in f32. So no sum is -0, and bits do not depend on threads. With `accumulate` it is sums + b0 + b1 + ... instead: rows
 *  that come in several calls, cut between blocks, make the bits of one call. */
void add_column_sums(const halyard_context &context, halyard_isa isa, const TypedRows &partials, int64_t blocks,
                     int64_t columns, float *sums, bool accumulate);

/** Sums x so. The sums of its blocks take column_sum_blocks(rows) * columns floats of `partials`. */
void column_sums(const halyard_context &context, halyard_isa isa, const TypedRows &x, int64_t rows, int64_t columns,
                 float *partials, float *sums, bool accumulate);

}  // namespace halyard

#endif
