// Packing kernels on processors.
#include "schedules/pack.h"

#include <algorithm>

#include "schedules/machine.h"
#include "schedules/search_space.h"

namespace halyard::schedules {

using namespace Halide;

namespace {

// A kernel either turns squares or copies rows: the parameter of the other way keeps its default.
const WorthCompiling choices("pack", [](const Choice &choice, const TargetInfo &target) {
    const auto transposed = target.kernel.find("transposed");
    if (transposed == target.kernel.end()) {
        return choice.at("side") == 0 && choice.at("rows") == 8;  // sums of columns
    }
    return transposed->second == "true" ? choice.at("rows") == 8 : choice.at("side") == 0;
});

// The side of a square that is best for most: on ARM as wide as a register of the elements, else 8 but for f32 on AVX-512.
// (16-bit elements in larger squares cross the halves of wide registers and are a fifth slower.)
int best_side(int bytes, const Target &target) {
    if (target.arch == Target::ARM) {
        return 16 / bytes;
    }
    return bytes == 4 && f32_lanes(target) == 16 ? 16 : 8;
}

// Rows of the source become columns of the panel, a square of both at a time, which is turned in registers.
void transpose(const Pack &stages, int preferred_side, const Target &target) {
    const Var tile("tile"), block("block");
    const int best = best_side(stages.panels.type().bytes() / stages.row_inputs, target);
    static_assert(min_transposed_inputs >= 16, "a square must fit into a call");
    const int side = std::min(preferred_side > 0 ? preferred_side : best, min_transposed_inputs / stages.row_inputs);
    Func panels = stages.panels, element = stages.element;
    panels.split(stages.row, tile, stages.row, side, TailStrategy::ShiftInwards)
        .split(stages.column, block, stages.column, side)
        .reorder(stages.column, stages.row, block, tile, stages.panel)
        .vectorize(stages.column)
        .unroll(stages.row)
        .unroll(block);
    element.compute_at(panels, block).vectorize(stages.row).unroll(stages.column);
}

// A row of the source holds a row of every panel. Eight rows at a time keep the reads long (all panels of the call, one
// after the other) and the writes too (8 rows of a panel instead of one: twice as fast for 16-bit elements).
void copy(const Pack &stages, int rows) {
    const Var tile("tile");
    Func panels = stages.panels;
    panels.reorder(stages.column, stages.panel, stages.row).vectorize(stages.column);
    Stage whole = panels.specialize(stages.rows >= rows);
    whole.split(stages.row, tile, stages.row, rows, TailStrategy::ShiftInwards)
        .reorder(stages.column, stages.row, stages.panel, tile);
    if (panels.type().bytes() == 2) {
        whole.vectorize(stages.row, 2);  // two rows of a panel are a cache line
    }
}

}  // namespace

void pack(const Pack &stages, const PackParams &params, const Target &target) {
    if (stages.transposed) {
        transpose(stages, params.side, target);
    } else {
        copy(stages, params.rows);
    }
}

void pack_sums(const PackSums &stages, const Target &target) {
    // The accumulators stay in registers; several make up for the latency of additions that have to come in order.
    const int vector = f32_lanes(target) / 2;
    Func element = stages.element, sum = stages.sum, sums = stages.sums;
    sums.vectorize(stages.column, vector).unroll(stages.column);
    sum.compute_root().vectorize(stages.column, vector).unroll(stages.column);
    sum.update().reorder(stages.column, stages.k).vectorize(stages.column, vector).unroll(stages.column);
    // Elements are widened by f32 vectors, not by the shorter f64 ones.
    element.compute_at(sum, stages.k).vectorize(stages.column, f32_lanes(target)).unroll(stages.column);
}

void widen_panels(const WidenPanels &stages, const Target &target) {
    // A row is loaded once for its inputs.
    const Var row("row");
    Func wide = stages.wide;
    wide.vectorize(stages.column, f32_lanes(target))
        .unroll(stages.column)
        .split(stages.input, row, stages.input, stages.row_inputs, TailStrategy::RoundUp)
        .reorder(stages.column, stages.input, row)
        .unroll(stages.input);
}

void expand_scales(const ExpandScales &stages, const Target &target) {
    Func expanded = stages.expanded;
    expanded.reorder(stages.column, stages.vector)
        .vectorize(stages.column, f32_lanes(target))
        .unroll(stages.column)
        .unroll(stages.vector);
}

void round_to_int8(const RoundToInt8 &stages, const Target &target) {
    // Units one after the other, each in a few vectors.
    const int vector = f32_lanes(target);
    for (Func reduction : {stages.largest, stages.sum}) {
        const RVar in = reduction.rvars(0)[0];

        reduction.compute_at(reduction.name() == stages.sum.name() ? stages.sums : stages.scales, stages.u);
        reduction.update().atomic().vectorize(in, stages.unit);
    }
    Func numbers = stages.numbers;
    const Var unit("unit");
    numbers.split(stages.input, unit, stages.input, stages.unit, TailStrategy::RoundUp)
        .vectorize(stages.input, vector)
        .unroll(stages.input);
}

}  // namespace halyard::schedules
