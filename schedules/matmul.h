// The matmul family: products of blocks of rows with packed weights, and the epilogues that make outputs of the sums.
#ifndef HALYARD_SCHEDULES_MATMUL_H
#define HALYARD_SCHEDULES_MATMUL_H

#include <algorithm>

#include "Halide.h"

#include "runtime/layout/matmul.h"
#include "schedules/machine.h"

namespace halyard::schedules {

/** Parameters, set per kernel and instruction set by schedules/tuned. */
struct MatmulParams {
    Halide::GeneratorParam<int> panels{"panels", 1};  // of 16 columns, in a tile
};

struct Matmul {
    Halide::Func prefetch;     // prefetch(panel, group, tile): 0, see below
    Halide::Func weight;       // weight(column, input in group, group, panel, tile), widened
    Halide::Func rest_weight;  // rest_weight(column, input, panel)
    Halide::Func block;  // block(column, panel, row, tile): update 0 over whole groups of inputs, update 1 the rest
    Halide::Func sum;    // sum(column, panel, row, tile)
    Halide::Var column, panel, row, tile;
    Halide::Expr panels;  // extent of panel
    Halide::Expr first;   // whether sum is block alone
    int group_size;       // inputs in a group
};

/** Whether a tile leaves registers for the pairs of a row of bf16 panels, beside its sums, widened weights, an element of x and
 *  a mask. */
inline bool holds_pairs(int rows, int panels, const Halide::Target &target) {
    const int vectors = panels * std::max(1, panel_width / f32_lanes(target));
    return vectors * (rows + 2) + 2 < vector_registers(target);
}

/** 0 for what is not negative, which the compiler cannot see: a load with it in its index is not merged with another. */
inline Halide::Expr unknown_zero(const Halide::Expr &not_negative) {
    return not_negative >> 31;
}

void matmul(const Matmul &stages, const MatmulParams &params, const Halide::Target &target);

/** 0, and on the way a hint to the processor to prefetch into its second-level cache the line of `next` that holds byte
 *  `offset` of `panel`. It has to be added to the index of a load.
 *
 *  Halide's own directive cannot prefetch a block in portions, a different one in each tile of rows. So this is its
 *  intrinsic, whose value is folded away after it has done its work. */
Halide::Expr prefetch(const Halide::Func &next, const Halide::Expr &offset, const Halide::Expr &panel);

struct MatmulCodes {
    Halide::Func prefetch;  // prefetch(panel, step, tile): 0
    Halide::Func word;      // word(column, step, panel, tile) of codes; undefined where numbers come from memory
    Halide::Func number;    // number(column, i of step, step, panel, tile)
    Halide::Func block;     // block(column, panel, row, tile, group): one update, over i and the steps of a group
    Halide::Func sum;       // sum(column, panel, row, tile): one update, over the groups
    Halide::Var column, panel, row, tile;
    Halide::Expr panels;  // extent of panel
};

void matmul_codes(const MatmulCodes &stages, const MatmulParams &params, const Halide::Target &target);

struct MatmulInt8 {
    Halide::Func prefetch;  // prefetch(panel, word, tile): 0
    Halide::Func dot;       // dot(column, panel, row, tile, unit): one update, over bytes, halves and words of a unit
    Halide::Func sum;  // sum(column, panel, row, tile): update 0 over the units, update 1 over the groups with offsets
    Halide::Var column, panel, row, tile;
    Halide::Expr panels;  // extent of panel
};

void matmul_int8(const MatmulInt8 &stages, const MatmulParams &params, const Halide::Target &target);

/** Parameters, set per kernel and instruction set by schedules/tuned. */
struct EpilogueParams {
    Halide::GeneratorParam<int> panels{"panels", 1};  // of 16 columns, computed per iteration
};

/** y(column, row), every element by itself; in whole panels. */
struct Epilogue {
    Halide::Func y;
    Halide::Var column, row;
};

void epilogue(const Epilogue &stages, const EpilogueParams &params, const Halide::Target &target);

}  // namespace halyard::schedules

#endif
