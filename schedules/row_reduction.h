// Reductions over a row whose result does not depend on the vector width, the thread count or the batch.
//
// A row of `width` features is mapped to a fixed number of virtual lanes, feature d to lane d mod L. Each lane
// accumulates its features in order; the lanes are then combined by halves: L/2 pairs (i, i + L/2), then L/4, ...
// down to one value. A machine with v-wide vectors holds the lanes in L/v registers, and every machine performs
// the same additions in the same order, so the sums have the same bits everywhere. (GPUs have an order of their own, see
// thread_reduction.h.)
#ifndef HALYARD_SCHEDULES_ROW_REDUCTION_H
#define HALYARD_SCHEDULES_ROW_REDUCTION_H

#include <optional>
#include <string>
#include <vector>

#include "Halide.h"
#include "schedules/element_access.h"
#include "schedules/thread_reduction.h"

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
    int vector = 0;             // values in a register, where halves of one are combined by rotating it; 0: one by one
    ThreadReduction threads;    // on a GPU, instead of lanes, blocks, rest and tree
};

/** How the target takes a row. */
struct RowForm {
    ElementAccess access;
    /** Access to the same features by twos: lanes 2i and 2i + 1 are then kept as two values of lane i, with the same
     *  sums. */
    std::optional<ElementAccess> pairs = {};
    /** RowReduction's `vector`. LLVM 21 takes the upper half of a vector that was stored apart in twenty instructions, and
     *  rotates one in one. */
    int rotated_lanes = 0;
    std::optional<RowThreads> threads = {};  // of a GPU
};

/** Reduces features 0 to width - 1 of row t: of one element, or of several side by side. */
inline RowReduction reduce_row(const std::string &name, const Halide::Expr &width, int lane_count, const Halide::Var &t,
                               const Accumulation &accumulation, const std::vector<Element> &elements,
                               const RowForm &form) {
    using namespace Halide;

    RowReduction r;
    r.width = width;
    r.vector = form.rotated_lanes;
    const auto feature = [&](const ElementAccess &at, const Expr &i) {
        Values values;
        for (const Element &element : elements) {
            values.push_back(element(at, i));
        }
        return values;
    };
    const auto feature_at = [&](const Expr &i) { return feature(form.access, i); };
    if (form.threads) {
        r.threads = reduce_row(name, width, *form.threads, t, accumulation, feature_at);
        r.result = r.threads.result;
        return r;
    }
    r.features_per_lane = form.pairs ? 2 : 1;
    r.lane_count = lane_count / r.features_per_lane;
    r.lanes = Func(name + "_lanes");
    r.result = Func(name);
    const Var lane = r.lane;

    const Expr whole = width / lane_count;
    const Expr remaining = width % lane_count;
    r.blocks = RDom(0, whole, name + "_block");
    r.rest = RDom(0, min(remaining, 1), name + "_rest");

    // The values of a lane, those of its second feature after those of its first.
    const size_t count = accumulation.initial.size();
    Values neutral;
    for (int part = 0; part < r.features_per_lane; part++) {
        neutral.insert(neutral.end(), accumulation.initial.begin(), accumulation.initial.end());
    }
    r.lanes(lane, t) = Tuple(neutral);
    const Values so_far = values_at(r.lanes, {lane, t});
    if (form.pairs) {
        r.tail = Func(name + "_tail");
        r.tail_features = RDom(0, remaining, name + "_tail_feature");
        r.tail(lane, t) = 0.0f;
        r.tail(r.tail_features, t) = feature_at(whole * lane_count + r.tail_features)[0];
        Values next, last;
        // r.rest is 0 where it is at all.
        for (int part = 0; part < 2; part++) {
            const Values before(so_far.begin() + part * count, so_far.begin() + (part + 1) * count);
            const Values after =
                accumulation.accumulate(before, feature(*form.pairs, 2 * (r.blocks * r.lane_count + lane) + part));
            const Values with_tail = accumulation.accumulate(before, {r.tail(2 * lane + part + r.rest, t)});
            for (size_t k = 0; k < count; k++) {
                next.push_back(after[k]);
                last.push_back(select(2 * lane + part < remaining, with_tail[k], before[k]));
            }
        }
        r.lanes(lane, t) = Tuple(next);
        r.lanes(lane, t) = Tuple(last);
    } else {
        r.rest.where(lane < remaining);
        r.lanes(lane, t) = Tuple(accumulation.accumulate(so_far, feature_at(r.blocks * lane_count + lane)));
        r.lanes(lane, t) = Tuple(accumulation.accumulate(so_far, feature_at((whole + r.rest) * lane_count + lane)));
    }

    Func wide = r.lanes;
    const int narrowest = r.vector ? 1 : 8;
    for (int half = r.lane_count / 2; half >= narrowest; half /= 2) {
        Func narrower(name + "_tree" + std::to_string(half));
        const Expr other = half < r.vector ? (lane + half) % r.vector : lane + half;
        narrower(lane, t) = Tuple(accumulation.combined(values_at(wide, {lane, t}), values_at(wide, {other, t})));
        r.tree.push_back(narrower);
        wide = narrower;
    }

    std::vector<Values> last;
    for (int i = 0; i < narrowest; i++) {
        last.push_back(values_at(wide, {i, t}));
    }
    for (int half = narrowest / 2; half >= 1; half /= 2) {
        for (int i = 0; i < half; i++) {
            last[i] = accumulation.combined(last[i], last[i + half]);
        }
    }
    Values result(last[0].begin(), last[0].begin() + count);
    if (form.pairs) {
        result = accumulation.combined(result, Values(last[0].begin() + count, last[0].end()));
    }
    r.result(t) = Tuple(result);
    return r;
}

/** For a rest that is taken by vectors of so many lanes, of which most are all there or not at all: these are taken or passed over as
 *  such, and the lanes of one alone are masked. */
inline void mask_partial_vectors(const RowReduction &r, int lanes) {
    Halide::Internal::Function function = r.lanes.function();
    const Halide::Expr remaining = r.width % r.lane_count;
    function.update(1).predicate() = r.lane / lanes * lanes < remaining && Halide::likely(r.lane < remaining);
}

}  // namespace halyard

#endif
