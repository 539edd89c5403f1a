// Matrix products on x86: tiles of rows and panels whose sums stay in registers.
#include "schedules/matmul.h"

#include <algorithm>
#include <vector>

#include "runtime/layout/matmul.h"
#include "schedules/machine.h"
#include "schedules/search_space.h"

namespace halyard::schedules {

using namespace Halide;

namespace {

// The sums of a tile and one weight of every panel are in registers at a time, and an element of x where several rows take
// the same weights; and a mask where pairs are widened.
bool fits_registers(const Choice &choice, const TargetInfo &target) {
    const int vectors = choice.at("panels") * std::max(1, panel_width / target.lanes);
    const int rows = target.number("rows", max_tile_rows);
    const bool widens_pairs = target.kernel.at("dtype") == "bf16" && target.generator == "matmul";
    return vectors * (rows + 1) + (rows > 1 ? 1 : 0) + (widens_pairs ? 1 : 0) <= target.registers;
}
const WorthCompiling choices("matmul", fits_registers), pairs_choices("matmul_pairs", fits_registers);

// As in the elementwise family.
const WorthCompiling epilogue_choices("epilogue", [](const Choice &choice, const TargetInfo &target) {
    return 2 * choice.at("panels") * panel_width / target.lanes <= target.registers;
});

}  // namespace

void matmul(const Matmul &stages, const MatmulParams &params, const Target &target) {
    const int vector = std::min(panel_width, f32_lanes(target));
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
    block.update(0)
        .reorder(column, panel, row, groups[0], groups[1])
        .vectorize(column, vector)
        .unroll(column)
        .unroll(panel)
        .unroll(row)
        .unroll(groups[0]);
    block.update(1)
        .reorder(column, panel, row, rest[0])
        .vectorize(column, vector)
        .unroll(column)
        .unroll(panel)
        .unroll(row);

    // One load, widening and prefetch for all rows of the tile.
    Func prefetch = stages.prefetch, weight = stages.weight, rest_weight = stages.rest_weight;
    prefetch.compute_at(block, groups[1]).unroll(panel);
    weight.compute_at(block, groups[0]).vectorize(column, panel_width).unroll(panel);
    rest_weight.compute_at(block, rest[0]).vectorize(column, panel_width).unroll(panel);
}

void epilogue(const Epilogue &stages, const EpilogueParams &params, const Target &target) {
    // A panel at a time, so that the columns of gate and up are dense vectors; several hide the latencies of the
    // activation.
    Func y = stages.y;
    const Var panel("panel"), inner("inner");
    y.split(stages.column, panel, stages.column, panel_width, TailStrategy::RoundUp)
        .vectorize(stages.column, std::min(panel_width, 2 * f32_lanes(target)));
    if (params.panels > 1) {
        y.split(panel, panel, inner, params.panels, TailStrategy::GuardWithIf)
            .reorder(stages.column, inner, panel)
            .unroll(inner);
    }
}

}  // namespace halyard::schedules
