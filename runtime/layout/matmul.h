// The numbers that the matmul kernels and the code that calls them must agree on.
#ifndef HALYARD_RUNTIME_LAYOUT_MATMUL_H
#define HALYARD_RUNTIME_LAYOUT_MATMUL_H

namespace halyard {

/** Columns of a panel of packed weights. */
constexpr int panel_width = 16;

/** Inputs of a row of a panel. In bf16 they come in pairs: a row has a word of 32 bits for each column, with the earlier input
 *  in its upper half. Either is widened by one instruction, and products of pairs take the words as they are. */
template<typename DType>
constexpr int row_inputs(DType dtype) {
    return dtype == DType::bf16 ? 2 : 1;
}

/** Inputs that are summed before their sum is added to that of the inputs before them. Part of the numerics, not of the
 *  tuning: a sum over K inputs errs by at most 512 + K / 512 roundings instead of K. */
constexpr int k_block = 512;

/** f32 values from one row of a block of x to the next. A constant, so that the rows of a tile are addressed by one
 *  register and offsets in the instructions; a cache line beyond 512, so that they do not share the cache's sets. */
constexpr int x_pitch = k_block + 16;

/** As x_pitch, in words that hold a pair of inputs each, as those of the panels do: whole lines, so that a piece of a row of
 *  64 bytes lies in one. */
constexpr int x_pair_pitch = x_pitch / 2 + 8;

/** The unit of inputs that share a scale where x is rounded to 8 bits: a group of the weights, if that is shorter. */
constexpr int max_int8_unit = 32, min_int8_unit = 16;

/** Such a row, in bytes: the numbers of a k block; behind them for each unit a scale in f32 and a correction in int32, -center times
 *  the sum of the numbers; and the line beyond. */
constexpr int x_int8_scales = k_block, x_int8_corrections = x_int8_scales + 4 * (k_block / min_int8_unit),
              x_int8_pitch = x_int8_corrections + 4 * (k_block / min_int8_unit) + 64;

/** Rows of the tallest tile of them. */
constexpr int max_int8_tile_rows = 4;

/** Rows of the tallest tile. */
constexpr int max_tile_rows = 8;

/** Rows of the tallest tile of AMX, and inputs of one of its instructions. */
constexpr int amx_tile_rows = 16, amx_step_inputs = 32;

/** Panels of the widest tile. */
constexpr int max_tile_panels = 8;

}  // namespace halyard

#endif
