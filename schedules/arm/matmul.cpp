// Matrix products on ARM: tiles of rows and panels whose sums stay in registers. No processor was at hand: what is said
// of speed is by the model of docs/arm.md.
//
// 6 rows by 16 columns take 24 of 32 registers for sums, 4 for weights and the rest for elements of x in turn: `fmla` by
// element, without a spill. 8 by 8 and 8 by 12 do not fit panels 16 wide, which packed weights have everywhere; 4 by 16
// has no more sums than four pipes with a latency of four need.
#include "schedules/matmul.h"

#include <algorithm>
#include <vector>

#include "runtime/layout/matmul.h"
#include "schedules/arm/vectors.h"
#include "schedules/search_space.h"

namespace halyard::schedules {

using namespace Halide;

namespace {

// The sums of a tile and the weights of one input are in registers at a time.
const WorthCompiling choices("matmul", [](const Choice &choice, const TargetInfo &target) {
    const int vectors = choice.at("panels") * panel_width / arm::f32_lanes;
    return vectors * (target.number("rows", max_tile_rows) + 1) <= target.registers;
});

const WorthCompiling epilogue_choices("epilogue", [](const Choice &choice, const TargetInfo &target) {
    return 2 * choice.at("panels") * panel_width / arm::f32_lanes <= target.registers;
});

}  // namespace

void matmul(const Matmul &stages, const MatmulParams &params, const Target &) {
    const int vector = arm::f32_lanes;
    const Var column = stages.column, panel = stages.panel, row = stages.row, tile = stages.tile;

    // A tile is computed and stored whole. Where the panels are fewer than a tile holds (the last ones of a matrix)
    // they go one by one; the schedule is the same but for the split.
    Func sum = stages.sum;
    sum.reorder(column, row, tile, panel).vectorize(column, vector).unroll(column).unroll(row);
    const Var outer("outer");
    for (const Expr &condition : {stages.first && stages.panels == params.panels, stages.panels == params.panels}) {
        sum.specialize(condition)
            .split(panel, outer, panel, params.panels, TailStrategy::RoundUp)
            .reorder(column, panel, row, tile, outer)
            .unroll(panel);
    }

    // The accumulators: every one is a register for as long as the loops over the inputs run. Loop control and
    // addresses are shared by the inputs between two prefetches.
    Func block = stages.block;
    block.compute_at(sum, tile).vectorize(column, vector).unroll(column).unroll(panel).unroll(row);
    const std::vector<RVar> groups = block.rvars(0), rest = block.rvars(1);
    // Four inputs at a time. One by one, LLVM takes an element of x for all lanes by a load that costs a slot of the
    // multiply-adds, ld1r.
    // 16-bit weights need registers to be widened in and go one by one: six rows of them would go to the stack.
    const auto *load = stages.weight.value().as<Internal::Call>();
    const int inputs = std::max(load && !load->is_intrinsic() ? 4 : 1, stages.group_size);
    const RVar many("many_groups"), few("few_groups");
    block.update(0)
        .split(groups[1], many, few, inputs / stages.group_size, TailStrategy::GuardWithIf)
        .reorder(column, panel, row, groups[0], few, many)
        .vectorize(column, vector)
        .unroll(column)
        .unroll(panel)
        .unroll(row)
        .unroll(groups[0])
        .unroll(few);
    block.update(1)
        .reorder(column, panel, row, rest[0])
        .vectorize(column, vector)
        .unroll(column)
        .unroll(panel)
        .unroll(row);

    // One load, widening and prefetch for all rows of the tile.
    Func prefetch = stages.prefetch, weight = stages.weight, rest_weight = stages.rest_weight;
    prefetch.compute_at(block, few).unroll(panel);
    weight.compute_at(block, groups[0]).vectorize(column, panel_width).unroll(panel);
    rest_weight.compute_at(block, rest[0]).vectorize(column, panel_width).unroll(panel);
}

void epilogue(const Epilogue &stages, const EpilogueParams &params, const Target &) {
    // Within a panel, so that the columns of gate and up are dense vectors.
    Func y = stages.y;
    const Var vector("vector"), panel("panel");
    y.split(stages.column, panel, stages.column, panel_width, TailStrategy::RoundUp)
        .split(stages.column, vector, stages.column, arm::f32_lanes)
        .vectorize(stages.column);
    if (params.panels > 1) {
        y.unroll(vector);
    }
}

}  // namespace halyard::schedules
