// Row kernels on ARM: the row is read from cache once per pass, everything between the passes stays in registers. No
// processor was at hand: what is said of speed is by the model of docs/arm.md.
//
// On a Neoverse N1 the sum of squares is bound by its loads, 32 bytes a cycle, and LayerNorm's moments by their three
// operations a vector on two pipes, neither by the latency of a sum.
#include "schedules/row.h"

#include <algorithm>

#include "schedules/arm/vectors.h"

namespace halyard::schedules {
namespace {

using namespace Halide;

/** Multiply-adds in what a reduction accumulates: a polynomial's, which need registers of their own. */
class MultiplyAdds : public Internal::IRGraphVisitor {
public:
    explicit MultiplyAdds(const RowReduction &r) {
        const Tuple values = r.lanes.update_values(0);
        for (const Expr &value : values.as_vector()) {
            value.accept(this);
        }
    }
    int count = 0;

private:
    using IRGraphVisitor::visit;
    void visit(const Internal::Call *call) override {
        count += call->name == "llvm.fma.f32";
        IRGraphVisitor::visit(call);
    }
};

// At each step of y's loop over `t` a stage is computed for as many rows as y takes in that step.
void per_step(Func stage, Func y, Var t) {
    stage.compute_at(y, t).unroll(t);
}

void reduction(RowReduction r, Func y, Var t) {
    // All lanes of all values are accumulators in registers through the whole pass: 16 of 32. Exponentials do not fit
    // beside them: two vectors of lanes at a time, in a pass for each two, keep within a cache line.
    constexpr int vector = arm::f32_lanes;
    const int in_registers = MultiplyAdds(r).count > 0 ? 2 * vector : r.lane_count;
    Var group("group");
    per_step(r.lanes, y, t);
    r.lanes.vectorize(r.lane, vector).unroll(r.lane);
    r.lanes.update(0).reorder(r.lane, t, r.blocks.x).vectorize(r.lane, vector).unroll(r.lane).unroll(t);
    r.lanes.update(1).vectorize(r.lane, vector).unroll(r.lane).unroll(t);

    int level_lanes = r.lane_count;
    for (Func level : r.tree) {
        // Whole registers as long as there are some: their halves are taken apart at great length.
        level_lanes /= 2;
        per_step(level, y, t);
        level.vectorize(r.lane, std::min(vector, level_lanes)).unroll(r.lane);
    }
    per_step(r.result, y, t);
}

}  // namespace

void row(const Row &stages, const RowParams &params, const Target &) {
    Func y = stages.y;
    const Var t = stages.t;
    arm::by_vectors(y, stages.d, params.vectors);
    for (const RowReduction &r : stages.reductions) {
        reduction(r, y, t);
    }
    for (Func scalar : stages.scalars) {
        per_step(scalar, y, t);
    }

    // Model widths are multiples of the lane count. Their branch has no masks to compute and keeps the accumulators out
    // of memory, which masked updates do not: a 64-wide row takes half the time.
    Expr whole = stages.width % 64 == 0;
    for (const RowReduction &r : stages.reductions) {
        whole = whole && r.width % r.lane_count == 0;
    }
    // Several rows at a time hide the latency of the sums, and a weight that is loaded and widened serves all of them.
    if (params.rows > 1) {
        const Var row("row");
        y.specialize(whole && y.output_buffer().dim(1).extent() % params.rows == 0)
            .split(t, t, row, params.rows, TailStrategy::RoundUp)
            .reorder(row, stages.d, t)
            .unroll(row);
    }
    y.specialize(whole);
}

void row_statistics(const Row &stages, const Target &) {
    Func y = stages.y;
    y.unroll(stages.d);
    for (const RowReduction &r : stages.reductions) {
        reduction(r, y, stages.t);
    }
    for (Func scalar : stages.scalars) {
        scalar.compute_at(y, stages.t);
    }
    y.specialize(stages.width % 64 == 0);
}

}  // namespace halyard::schedules
