// Matrix products on x86: tiles of rows and panels whose sums stay in registers.
//
// Reached (halyard-bench, 2 threads of a Xeon with AVX-512, f32, 4096 x 11008, hot, 2026-11-21): of the time to read
// the weights 90 to 99 % with one row, 91 % with 2, 77 to 93 % with 8; of the rate of multiply-adds without loads 81 % with
// 128 and with 512 rows (79 to 83 % on AVX2). With its operands in cache the same loop reaches 88 to 95 %: the clock
// falls when multiply-adds come with loads.
#include "schedules/matmul.h"

#include <algorithm>
#include <vector>

#include "runtime/layout/matmul.h"
#include "schedules/machine.h"
#include "schedules/space.h"

namespace halyard::schedules {

using namespace Halide;

namespace {

// The sums of a tile and one weight of every panel are in registers at a time, and an element of x where several rows take
// the same weights.
const Space space("matmul", {{"panels", 1, {1, 2, 3, 4, 5, 6, 7, 8}}},
                  [](const Choice &choice, const Circumstances &c) {
                      const int vectors = choice.at("panels") * std::max(1, panel_width / c.lanes);
                      const int rows = c.number("rows", max_tile_rows);
                      return vectors * (rows + 1) + (rows > 1 ? 1 : 0) <= c.registers;
                  });

// As in the elementwise family.
const Space epilogue_space("epilogue", {{"panels", 1, {1, 2, 3, 4}}}, [](const Choice &choice, const Circumstances &c) {
    return 2 * choice.at("panels") * panel_width / c.lanes <= c.registers;
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
    // addresses are shared by the inputs between two fetches.
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

    // One load, widening and fetch for all rows of the tile.
    Func fetch = stages.fetch, weight = stages.weight, rest_weight = stages.rest_weight;
    fetch.compute_at(block, groups[1]).unroll(panel);
    weight.compute_at(block, groups[0]).vectorize(column, panel_width).unroll(panel);
    rest_weight.compute_at(block, rest[0]).vectorize(column, panel_width).unroll(panel);
}

Expr fetch(const Func &next, const Expr &offset, const Expr &panel) {
    const Internal::Call *access = next.value().as<Internal::Call>();
    const Parameter buffer = access->param;
    const Expr address = Internal::Variable::make(type_of<uint8_t *>(), buffer.name(), buffer);
    const Expr stride = Internal::Variable::make(Int(32), buffer.name() + ".stride.1", buffer);
    const Expr fetched = Internal::Call::make(UInt(8), Internal::Call::prefetch,
                                              {address, offset + panel * stride, 1, 1}, Internal::Call::Intrinsic);
    return unsafe_promise_clamped(cast<int>(fetched), 0, 1);
}

void epilogue(const Epilogue &stages, const EpilogueParams &params, const Target &target) {
    // A panel at a time, so that the columns of gate and up are dense vectors; several hide the latencies of the
    // activation. The last columns of a matrix are one masked step.
    Func y = stages.y;
    const Var panel("panel"), inner("inner");
    y.split(stages.column, panel, stages.column, panel_width, TailStrategy::GuardWithIf)
        .vectorize(stages.column, std::min(panel_width, 2 * f32_lanes(target)));
    if (params.panels > 1) {
        y.split(panel, panel, inner, params.panels, TailStrategy::GuardWithIf)
            .reorder(stages.column, inner, panel)
            .unroll(inner);
    }
}

}  // namespace halyard::schedules
