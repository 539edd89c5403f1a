// What the kernels that add up the rows of a matrix have in common with their callers.
#ifndef HALYARD_RUNTIME_LAYOUT_COLUMN_SUM_H
#define HALYARD_RUNTIME_LAYOUT_COLUMN_SUM_H

namespace halyard {

/** Rows that are added one after the other before their sum is added to that of the rows before them. Part of the numerics, not
 *  of the tuning: a sum over n rows errs by at most 32 + n / 32 roundings instead of n. */
constexpr int column_sum_rows = 32;

/** Columns of a kernel call at most, whose sums are on its stack. */
constexpr int column_sum_columns = 1024;

/** So many columns, or a multiple, are whole tiles of every kernel. What is no whole tile takes longer. */
constexpr int column_sum_tile = 128;

}  // namespace halyard

#endif
