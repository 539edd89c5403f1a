// Matrix products on processors: prefetches, and products with codes.
#include "schedules/matmul.h"

#include <vector>

#include "runtime/layout/matmul.h"
#include "schedules/machine.h"
#include "schedules/search_space.h"

namespace halyard::schedules {

using namespace Halide;

namespace {

// The sums of a group are in registers, a vector of every panel wide. Beside them are a word of one panel and numbers in the making,
// or numbers of every panel and an element of x.
bool codes_fit_registers(const Choice &choice, const TargetInfo &target) {
    const int rows = target.number("rows", max_tile_rows), panels = choice.at("panels");
    return panels * rows + (target.number("bits", 8) <= 8 ? 5 : panels + 1) <= target.registers;
}
const WorthCompiling codes_choices("matmul_codes", codes_fit_registers),
    int8_choices("matmul_int8", codes_fit_registers), widened_choices("matmul_widened_codes", codes_fit_registers);

/** What is added to the sums in turn of `over`: tiles as those of matmul(), but a vector wide in every panel. */
template<typename Stages>
void add_in_tiles(Stage added, const RVar &over, const Stages &stages, const MatmulParams &params, int vector) {
    const Var part("part"), outer("outer");
    added.split(stages.column, part, stages.column, vector)
        .reorder(stages.column, stages.row, over, part, stages.tile, stages.panel)
        .vectorize(stages.column)
        .unroll(stages.row);
    added.specialize(stages.panels == params.panels)
        .split(stages.panel, outer, stages.panel, params.panels, TailStrategy::RoundUp)
        .reorder(stages.column, stages.panel, stages.row, over, part, stages.tile, outer)
        .unroll(stages.panel);
}

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
    const Var column = stages.column, panel = stages.panel, row = stages.row;
    Func sum = stages.sum, block = stages.block, number = stages.number, prefetch = stages.prefetch, word = stages.word;

    // More than a vector of every panel at a time, and the compiler runs out of registers for what is made of codes. Sums of groups go to
    // those of all by way of the first-level cache.
    sum.vectorize(column, vector);
    add_in_tiles(sum.update(), sum.rvars(0)[0], stages, params, vector);

    block.compute_at(sum, sum.rvars(0)[0]).vectorize(column, vector).unroll(panel).unroll(row);
    const std::vector<RVar> in = block.rvars(0);
    if (word.defined()) {
        // All inputs of a word before the next panel: it is loaded once, and stays in a register for so long.
        block.update().reorder(column, row, in[0], panel, in[1]);
        word.compute_at(block, panel).vectorize(column, vector);
    } else {
        // An element of x for all panels.
        block.update().reorder(column, panel, row, in[0], in[1]);
        number.unroll(stages.panel);
    }
    block.update().vectorize(column, vector).unroll(row).unroll(in[0]).unroll(panel);
    number.compute_at(block, in[0]).vectorize(column, vector);
    prefetch.compute_at(block, in[1]).unroll(panel);
}

void matmul_int8(const MatmulInt8 &stages, const MatmulParams &params, const Target &target) {
    const int vector = std::min(panel_width, f32_lanes(target));
    const Var column = stages.column, panel = stages.panel, row = stages.row;
    Func sum = stages.sum, dot = stages.dot, prefetch = stages.prefetch;

    // As those of codes: sums of units go to those of all by way of the first-level cache.
    sum.vectorize(column, vector);
    for (int update = 0; update < sum.num_update_definitions(); update++) {
        add_in_tiles(sum.update(update), sum.rvars(update)[0], stages, params, vector);
    }

    // The four bytes of a word of x go to all columns, and are multiplied and summed within a lane.
    const std::vector<RVar> in = dot.rvars(0);
    dot.compute_at(sum, sum.rvars(0)[0]).vectorize(column, vector).unroll(panel).unroll(row);
    dot.update()
        .reorder(in[0], column, row, in[1], panel, in[2])
        .atomic()
        .vectorize(in[0])
        .vectorize(column, vector)
        .unroll(row)
        .unroll(in[1])
        .unroll(panel);
    prefetch.compute_at(dot, in[2]).unroll(panel);
}

}  // namespace halyard::schedules
