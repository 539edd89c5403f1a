// Reductions over a row on ARM.
#ifndef HALYARD_SCHEDULES_ARM_REDUCTION_H
#define HALYARD_SCHEDULES_ARM_REDUCTION_H

#include <algorithm>

#include "schedules/arm/vectors.h"
#include "schedules/row_reduction.h"

namespace halyard::schedules::arm {

/** What a reduction accumulates needs registers of its own: many for a polynomial's multiply-adds, few for a choice. */
class Accumulated : public Halide::Internal::IRGraphVisitor {
public:
    explicit Accumulated(const RowReduction &r) {
        const Halide::Tuple values = r.lanes.update_values(0);
        for (const Halide::Expr &value : values.as_vector()) {
            value.accept(this);
        }
    }
    bool has_polynomial = false, has_choice = false;

private:
    using IRGraphVisitor::visit;
    void visit(const Halide::Internal::Call *call) override {
        has_polynomial |= call->name == "llvm.fma.f32";
        IRGraphVisitor::visit(call);
    }
    void visit(const Halide::Internal::Select *select) override {
        has_choice = true;
        IRGraphVisitor::visit(select);
    }
};

/** Takes the rest by so many lanes at a time. */
inline void reduce_rest(RowReduction r, Halide::Var t, int lanes) {
    r.lanes.update(1).vectorize(r.lane, lanes).unroll(r.lane).unroll(t);
    mask_partial_vectors(r, lanes);
}

/** Computes r at each step of y's loop over t, for as many rows as y takes in that step. */
inline void reduction(RowReduction r, Halide::Func y, Halide::Var t) {
    // All lanes of all values are accumulators in registers through the whole pass: 16 of 32. Where what is accumulated
    // needs more than the rest, half of the lanes go at a time, and with exponentials two vectors of them: in passes
    // that keep within a cache line.
    const Accumulated accumulated(r);
    const int in_registers = accumulated.has_polynomial ? 2 * f32_lanes
                             : accumulated.has_choice   ? r.lane_count / 2
                                                        : r.lane_count;
    const Halide::Var group("group");
    r.lanes.compute_at(y, t).unroll(t).vectorize(r.lane, f32_lanes).unroll(r.lane);
    r.lanes.update(0)
        .split(r.lane, group, r.lane, in_registers)
        .reorder(r.lane, t, r.blocks.x, group)
        .vectorize(r.lane, f32_lanes)
        .unroll(r.lane)
        .unroll(t)
        .unroll(group);
    // Two vectors at a time ask half as often which are there; masked, they would compute twice as many exponentials.
    reduce_rest(r, t, accumulated.has_polynomial ? f32_lanes : 2 * f32_lanes);

    int level_lanes = r.lane_count;
    for (Halide::Func level : r.tree) {
        // Whole registers as long as there are some: their halves are taken apart at great length.
        level_lanes /= 2;
        level.compute_at(y, t).unroll(t).vectorize(r.lane, std::min(f32_lanes, level_lanes)).unroll(r.lane);
    }
    r.result.compute_at(y, t).unroll(t);
}

}  // namespace halyard::schedules::arm

#endif
