// The pack family: weights into panels, and sums of their columns.
#ifndef HALYARD_SCHEDULES_PACK_H
#define HALYARD_SCHEDULES_PACK_H

#include "Halide.h"

#include "runtime/pack_layout.h"

namespace halyard::schedules {

struct Pack {
    Halide::Func element;  // element(input, column, panel)
    Halide::Func panels;   // panels(column, input, panel), the same
    Halide::Var column, input, panel;
    Halide::Expr inputs;  // extent of input
    bool transposed;      // elements lie in memory input by input; then there are at least min_transposed_inputs
};

void pack(const Pack &stages, const Halide::Target &target);

struct PackSums {
    Halide::Func element;  // element(column, input), widened to f32
    Halide::Func sum;      // sum(column), over k
    Halide::Func sums;     // sums(column), the same
    Halide::RVar k;
    Halide::Var column;
};

void pack_sums(const PackSums &stages, const Halide::Target &target);

}  // namespace halyard::schedules

#endif
