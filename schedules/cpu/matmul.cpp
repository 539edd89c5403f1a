// Matrix products on processors: prefetches, and products with codes.
#include "schedules/matmul.h"

#include <vector>

#include "schedules/machine.h"
#include "schedules/search_space.h"

namespace halyard::schedules {

using namespace Halide;

namespace {

// The sums of a tile are in registers; and of a panel, a vector at a time, a word, its scales and zeros, a weight, and what
// is laid over and under codes.
const WorthCompiling codes_choices("matmul_codes", [](const Choice &choice, const TargetInfo &target) {
    const int vectors = choice.at("panels") * std::max(1, panel_width / target.lanes);
    return vectors * target.number("rows", max_tile_rows) + 7 <= target.registers;
});

}  // namespace

Expr prefetch(const Func &next, const Expr &offset, const Expr &panel) {
    const Internal::Call *access = next.value().as<Internal::Call>();
    const Parameter buffer = access->param;
    const Expr address = Internal::Variable::make(type_of<uint8_t *>(), buffer.name(), buffer);
    const Expr stride = Internal::Variable::make(Int(32), buffer.name() + ".stride.1", buffer);
    const Expr prefetched = Internal::Call::make(UInt(8), Internal::Call::prefetch,
                                                 {address, offset + panel * stride, 1, 1}, Internal::Call::Intrinsic);
    return unsafe_promise_clamped(cast<int>(prefetched), 0, 1);
}

void matmul_codes(const MatmulCodes &stages, const MatmulParams &params, const Target &target) {
    const int vector = std::min(panel_width, f32_lanes(target));
    const Var column = stages.column, panel = stages.panel, row = stages.row, tile = stages.tile;

    // Tiles and their sums are those of matmul().
    Func sum = stages.sum;
    sum.reorder(column, row, tile, panel).vectorize(column, vector).unroll(column).unroll(row);
    const Var outer("outer");
    for (const Expr &condition : {stages.first && stages.panels == params.panels, stages.panels == params.panels}) {
        sum.specialize(condition)
            .split(panel, outer, panel, params.panels, TailStrategy::RoundUp)
            .reorder(column, panel, row, tile, outer)
            .unroll(panel);
    }

    // All inputs of a word before the next panel: it and its scales are loaded once, and stay in registers for so long.
    Func block = stages.block;
    const Var half("half");
    block.compute_at(sum, tile).vectorize(column, vector).unroll(column).unroll(panel).unroll(row);
    const std::vector<RVar> inputs = block.rvars(0), rest = block.rvars(1);
    block.update(0)
        .split(column, half, column, vector)
        .reorder(column, row, inputs[0], half, panel, inputs[1])
        .vectorize(column)
        .unroll(row)
        .unroll(inputs[0])
        .unroll(half)
        .unroll(panel);
    block.update(1)
        .reorder(column, row, panel, rest[0])
        .vectorize(column, vector)
        .unroll(column)
        .unroll(row)
        .unroll(panel);

    Func prefetch = stages.prefetch, word = stages.word, weight = stages.weight, rest_weight = stages.rest_weight;
    prefetch.compute_at(block, inputs[1]).unroll(panel);
    word.compute_at(block, half).vectorize(column);
    weight.compute_at(block, inputs[0]).vectorize(column);
    rest_weight.compute_at(block, panel).vectorize(column, vector).unroll(column);
}

}  // namespace halyard::schedules
