// Rows that got NaN from values they do not see: their weights are 0, but 0 times infinity is NaN.
#ifndef HALYARD_RUNTIME_CPU_ATTENTION_HIDDEN_VALUES_H
#define HALYARD_RUNTIME_CPU_ATTENTION_HIDDEN_VALUES_H

#include "cpu/attention/row_tiles.h"
#include "cpu/linear/blocked_rows.h"
#include "cpu/linear/panels.h"

namespace halyard {

/** Weighs anew, from the values each sees alone, the rows of masked tiles with NaN in `results` [row][value columns].
 *  `memory`: for the values of a block in f32. */
void leave_out_hidden_values(const RowTiles &tiles, const BlockedRows &weights, const Panels &values, float *memory,
                             float *results);

}  // namespace halyard

#endif
