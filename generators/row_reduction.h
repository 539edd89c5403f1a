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
#include "schedules/machine.h"
#include "thread_reduction.h"

namespace halyard {

struct RowReduction {
    Halide::Func lanes;              // lanes(lane, t), update 0 over whole blocks of features, update 1 the rest
    Halide::RDom blocks, rest;       // the domains of the two updates
    Halide::Func tail;               // tail(i, t), for pairs: the features of the rest, then zeros
    Halide::RDom tail_features;      // the domain of its update
    std::vector<Halide::Func> tree;  // tree[i](lane, t): lane_count >> (i + 1) lanes, but no fewer than `vector`, or 8
    Halide::Func result;             // result(t)
    Halide::Var lane{"lane"};
    Halide::Expr width;
    int lane_count = 0;         // L, or L/2 that hold two each
    int features_per_lane = 1;  // in a block
    int vector = 0;             // values in a register, where halves of one are joined by rotating it; 0: one by one
    ThreadReduction threads;    // on a GPU, instead of lanes, blocks, rest and tree
};

/** feature(i) of the current row, in f32. */
using Feature = std::function<Halide::Expr(Halide::Expr)>;

/** Reduces features 0 to width - 1 of row t.
 *
 *  initial     the neutral element of each value
 *  accumulate  (values so far, a feature) -> new values. Write a sum as `sum + term` or `sum + a * b` with
 *              strict_float terms: exactly these two shapes become an add and a fused multiply-add on every target
 *  combine     of two partial results, commutative
 *  threads     null but on a GPU, where the row is dealt to these instead of to lanes
 *  paired      the features read by twos (pairs.h): lanes 2i and 2i + 1 are then kept as two values of lane i, with the
 *              same sums; null: they are read one by one
 *  vector      see RowReduction. LLVM 21 takes the upper half of a vector that was stored apart in twenty instructions,
 *              and rotates one in one: norms of rows of 64 take three quarters of the time. (Softmax gains nothing.)
 */
inline RowReduction reduce_row(const std::string &name, Halide::Expr width, int lane_count, Halide::Var t,
                               const Values &initial, const Feature &feature,
                               const std::function<Values(const Values &, Halide::Expr)> &accumulate,
                               const std::function<Halide::Expr(Halide::Expr, Halide::Expr)> &combine,
                               const RowThreads *threads = nullptr, const Feature &paired = nullptr, int vector = 0) {
    using namespace Halide;

    RowReduction r;
    r.width = width;
    r.vector = vector;
    if (threads) {
        r.threads = reduce_row(
            name, width, *threads, t, initial,
            [&](const Values &so_far, Expr i) { return accumulate(so_far, feature(i)); }, combine);
        r.result = r.threads.result;
        return r;
    }
    r.features_per_lane = paired ? 2 : 1;
    r.lane_count = lane_count / r.features_per_lane;
    r.lanes = Func(name + "_lanes");
    r.result = Func(name);
    const Var lane = r.lane;

    const Expr whole = width / lane_count;
    const Expr remaining = width % lane_count;
    r.blocks = RDom(0, whole, name + "_block");
    r.rest = RDom(0, min(remaining, 1), name + "_rest");

    // The values of a lane, those of its second feature after those of its first.
    const size_t count = initial.size();
    Values neutral;
    for (int part = 0; part < r.features_per_lane; part++) {
        neutral.insert(neutral.end(), initial.begin(), initial.end());
    }
    const auto part_of = [count](const Values &values, int part) {
        return Values(values.begin() + part * count, values.begin() + (part + 1) * count);
    };
    r.lanes(lane, t) = Tuple(neutral);
    const Values so_far = values_at(r.lanes, {lane, t});
    if (paired) {
        r.tail = Func(name + "_tail");
        r.tail_features = RDom(0, remaining, name + "_tail_feature");
        r.tail(lane, t) = 0.0f;
        r.tail(r.tail_features, t) = feature(whole * lane_count + r.tail_features);
        Values next, last;
        // r.rest is 0 where it is at all.
        for (int part = 0; part < 2; part++) {
            const Values before = part_of(so_far, part);
            const Values after = accumulate(before, paired(2 * (r.blocks * r.lane_count + lane) + part));
            const Values with_tail = accumulate(before, r.tail(2 * lane + part + r.rest, t));
            for (size_t k = 0; k < count; k++) {
                next.push_back(after[k]);
                last.push_back(select(2 * lane + part < remaining, with_tail[k], before[k]));
            }
        }
        r.lanes(lane, t) = Tuple(next);
        r.lanes(lane, t) = Tuple(last);
    } else {
        r.rest.where(lane < remaining);
        r.lanes(lane, t) = Tuple(accumulate(so_far, feature(r.blocks * lane_count + lane)));
        r.lanes(lane, t) = Tuple(accumulate(so_far, feature((whole + r.rest) * lane_count + lane)));
    }

    Func wide = r.lanes;
    const auto join = [&](const Expr &i, const Expr &other) {
        const Values low = values_at(wide, {i, t}), high = values_at(wide, {other, t});
        Values sums;
        for (size_t k = 0; k < low.size(); k++) {
            sums.push_back(combine(low[k], high[k]));
        }
        return sums;
    };
    const int narrowest = vector ? 1 : 8;
    for (int half = r.lane_count / 2; half >= narrowest; half /= 2) {
        Func narrower(name + "_tree" + std::to_string(half));
        narrower(lane, t) = Tuple(join(lane, half < vector ? (lane + half) % vector : lane + half));
        r.tree.push_back(narrower);
        wide = narrower;
    }

    std::vector<Values> last;
    for (int i = 0; i < narrowest; i++) {
        last.push_back(values_at(wide, {i, t}));
    }
    for (int half = narrowest / 2; half >= 1; half /= 2) {
        for (int i = 0; i < half; i++) {
            for (size_t k = 0; k < last[i].size(); k++) {
                last[i][k] = combine(last[i][k], last[i + half][k]);
            }
        }
    }
    Values result(last[0].begin(), last[0].begin() + count);
    for (size_t k = count; k < last[0].size(); k++) {
        result[k - count] = combine(result[k - count], last[0][k]);
    }
    r.result(t) = Tuple(result);
    return r;
}

/** `vector` for a target. */
inline int rotated_lanes(const Halide::Target &target, bool using_autoscheduler) {
    const bool on_x86 = target.arch == Halide::Target::X86 && !target.has_gpu_feature();
    return on_x86 && !using_autoscheduler ? schedules::f32_lanes(target) : 0;
}

/** Addition that no compiler may reorder. */
inline Halide::Expr exact_sum(Halide::Expr a, Halide::Expr b) {
    return Halide::strict_float(a + b);
}

}  // namespace halyard

#endif
