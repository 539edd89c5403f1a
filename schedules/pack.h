// The pack family: weights into panels, and sums of their columns.
#ifndef HALYARD_SCHEDULES_PACK_H
#define HALYARD_SCHEDULES_PACK_H

#include "Halide.h"

#include "runtime/layout/pack.h"

namespace halyard::schedules {

/** Parameters, set per kernel and instruction set by schedules/tuned. */
struct PackParams {
    Halide::GeneratorParam<int> side{"side",
                                     0};  // of the squares that are turned in registers; 0: what is best for most
    Halide::GeneratorParam<int> rows{"rows", 8};  // of the source that are copied at a time
};

struct Pack {
    Halide::Func element;  // element(row, column, panel)
    Halide::Func panels;   // panels(column, row, panel), the same
    Halide::Var column, row, panel;
    Halide::Expr rows;  // extent of row
    int row_inputs;     // of the matrix in a row
    bool transposed;    // elements lie in memory input by input; then there are at least min_transposed_inputs
};

void pack(const Pack &stages, const PackParams &params, const Halide::Target &target);

struct PackSums {
    Halide::Func element;  // element(column, input), widened to f32
    Halide::Func sum;      // sum(column), over k
    Halide::Func sums;     // sums(column), the same
    Halide::RVar k;
    Halide::Var column;
};

void pack_sums(const PackSums &stages, const Halide::Target &target);

struct WidenPanels {
    Halide::Func wide;  // wide(column, input, panel), of whole rows
    Halide::Var column, input;
    int row_inputs;  // of a row that is widened
};

void widen_panels(const WidenPanels &stages, const Halide::Target &target);

struct ExpandScales {
    Halide::Func expanded;  // expanded(column, vector, group, panel)
    Halide::Var column, vector;
};

void expand_scales(const ExpandScales &stages, const Halide::Target &target);

struct RoundToInt8 {
    Halide::Func largest, sum;           // largest(u, row), sum(u, row): reductions over a unit
    Halide::Func scales, numbers, sums;  // scales(u, row), numbers(input, row), sums(u, row)
    Halide::Var input, u;
    int unit;
};

void round_to_int8(const RoundToInt8 &stages, const Halide::Target &target);

}  // namespace halyard::schedules

#endif
