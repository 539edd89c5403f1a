// Reductions over a row whose result does not depend on the vector width, the thread count or the batch.
//
// A row of `width` features is dealt to a fixed number of virtual lanes, feature d to lane d mod L. Each lane
// accumulates its features in order; the lanes are then combined by halves: L/2 pairs (i, i + L/2), then L/4, ...
// down to one value. A machine with v-wide vectors holds the lanes in L/v registers, and every machine performs
// the same additions in the same order, so the sums have the same bits everywhere.
#ifndef HALYARD_GENERATORS_ROW_REDUCTION_H
#define HALYARD_GENERATORS_ROW_REDUCTION_H

#include <functional>
#include <string>
#include <vector>

#include "Halide.h"
#include "thread_reduction.h"

namespace halyard {

struct RowReduction {
    Halide::Func lanes;              // lanes(lane, t), update 0 over whole blocks of L features, update 1 the rest
    Halide::RDom blocks, rest;       // the domains of the two updates
    std::vector<Halide::Func> tree;  // tree[i](lane, t): L >> (i + 1) lanes, the last one 8 wide
    Halide::Func result;             // result(t)
    Halide::Var lane{"lane"};
    Halide::Expr width;
    int lane_count = 0;
    ThreadReduction threads;  // on a GPU, instead of lanes, blocks, rest and tree
};

/** Reduces features 0 to width - 1 of row t.
 *
 *  initial     the neutral element of each value
 *  accumulate  (values so far, feature index) -> new values. Write a sum as `sum + term` or `sum + a * b` with
 *              strict_float terms: exactly these two shapes become an add and a fused multiply-add on every target
 *  combine     of two partial results, commutative
 *  threads     null but on a GPU, where the row is dealt to these instead of to lanes
 */
inline RowReduction reduce_row(const std::string &name, Halide::Expr width, int lane_count, Halide::Var t,
                               const Values &initial,
                               const std::function<Values(const Values &, Halide::Expr)> &accumulate,
                               const std::function<Halide::Expr(Halide::Expr, Halide::Expr)> &combine,
                               const RowThreads *threads = nullptr) {
    using namespace Halide;

    RowReduction r;
    r.width = width;
    if (threads) {
        r.threads = reduce_row(name, width, *threads, t, initial, accumulate, combine);
        r.result = r.threads.result;
        return r;
    }
    r.lane_count = lane_count;
    r.lanes = Func(name + "_lanes");
    r.result = Func(name);
    const Var lane = r.lane;

    const Expr whole = width / lane_count;
    const Expr remaining = width % lane_count;
    r.blocks = RDom(0, whole, name + "_block");
    r.rest = RDom(0, min(remaining, 1), name + "_rest");
    r.rest.where(lane < remaining);

    r.lanes(lane, t) = Tuple(initial);
    r.lanes(lane, t) = Tuple(accumulate(values_at(r.lanes, {lane, t}), r.blocks * lane_count + lane));
    r.lanes(lane, t) = Tuple(accumulate(values_at(r.lanes, {lane, t}), (whole + r.rest) * lane_count + lane));

    Func wide = r.lanes;
    const auto halve = [&](const Expr &i, int half) {
        const Values low = values_at(wide, {i, t}), high = values_at(wide, {i + half, t});
        Values sums;
        for (size_t k = 0; k < low.size(); k++) {
            sums.push_back(combine(low[k], high[k]));
        }
        return sums;
    };
    for (int half = lane_count / 2; half >= 8; half /= 2) {
        Func narrower(name + "_tree" + std::to_string(half));
        narrower(lane, t) = Tuple(halve(lane, half));
        r.tree.push_back(narrower);
        wide = narrower;
    }

    std::vector<Values> last;
    for (int i = 0; i < 8; i++) {
        last.push_back(values_at(wide, {i, t}));
    }
    for (int half = 4; half >= 1; half /= 2) {
        for (int i = 0; i < half; i++) {
            for (size_t k = 0; k < last[i].size(); k++) {
                last[i][k] = combine(last[i][k], last[i + half][k]);
            }
        }
    }
    r.result(t) = Tuple(last[0]);
    return r;
}

/** Addition that no compiler may reorder. */
inline Halide::Expr exact_sum(Halide::Expr a, Halide::Expr b) {
    return Halide::strict_float(a + b);
}

}  // namespace halyard

#endif
