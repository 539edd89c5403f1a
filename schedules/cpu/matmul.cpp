// Matrix products on processors: prefetches, and products with codes.
#include "schedules/matmul.h"

#include <vector>

#include "runtime/layout/codes.h"
#include "schedules/machine.h"
#include "schedules/search_space.h"

namespace halyard::schedules {

using namespace Halide;

namespace {

// The sums of a vector of every panel are in registers; and of one panel a word, its scales and zeros, a weight, and what is
// laid over and under codes.
const WorthCompiling codes_choices("matmul_codes", [](const Choice &choice, const TargetInfo &target) {
    return choice.at("panels") * target.number("rows", max_code_rows) + 7 <= target.registers;
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

    // Tiles are those of matmul(), but that they are a vector wide in every panel, and words are read again for the next one:
    // with more at a time the compiler runs out of registers.
    Func sum = stages.sum;
    const Var part("part"), outer("outer");
    sum.split(column, part, column, vector).reorder(column, row, part, tile, panel).vectorize(column).unroll(row);
    for (const Expr &condition : {stages.first && stages.panels == params.panels, stages.panels == params.panels}) {
        sum.specialize(condition)
            .split(panel, outer, panel, params.panels, TailStrategy::RoundUp)
            .reorder(column, panel, row, part, tile, outer)
            .unroll(panel);
    }

    // All inputs of a word before the next panel: it and its scales are loaded once, and stay in registers for so long.
    Func block = stages.block;
    block.compute_at(sum, part).vectorize(column, vector).unroll(panel).unroll(row);
    const std::vector<RVar> inputs = block.rvars(0), rest = block.rvars(1);
    block.update(0)
        .reorder(column, row, inputs[0], panel, inputs[1])
        .vectorize(column, vector)
        .unroll(row)
        .unroll(inputs[0])
        .unroll(panel);
    block.update(1).reorder(column, row, panel, rest[0]).vectorize(column, vector).unroll(row).unroll(panel);

    Func prefetch = stages.prefetch, word = stages.word, weight = stages.weight, rest_weight = stages.rest_weight;
    prefetch.compute_at(block, inputs[1]).unroll(panel);
    word.compute_at(block, panel).vectorize(column, vector);
    weight.compute_at(block, inputs[0]).vectorize(column, vector);
    rest_weight.compute_at(block, panel).vectorize(column, vector);
}

}  // namespace halyard::schedules
