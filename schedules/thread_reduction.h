// Reductions over a row by the threads of a GPU, with a result that depends on the row and its width alone.
//
// The row's 16-byte vectors, four words of 32 bits each, are mapped to warps of 32 threads: the first vector to the first
// thread of the first warp, and so on, over and over. Each thread accumulates its four words apart from each other, in order;
// they are combined by halves, so are the 32 threads of a warp, and the warps follow one after the other. The number of warps
// is the caller's choice, which must be a function of the width. Whether the words are read four at once (`packed`) or element
// by element makes no difference to the result.
#ifndef HALYARD_SCHEDULES_THREAD_REDUCTION_H
#define HALYARD_SCHEDULES_THREAD_REDUCTION_H

#include <functional>
#include <string>
#include <vector>

#include "Halide.h"
#include "schedules/gpu_vectors.h"

namespace halyard {

/** One value or several that are accumulated side by side. */
using Values = std::vector<Halide::Expr>;

/** The values of a Func at a point, one or several. */
inline Values values_at(const Halide::Func &f, const std::vector<Halide::Expr> &point) {
    Values values;
    for (int i = 0; i < f.outputs(); i++) {
        values.push_back(f.outputs() == 1 ? Halide::Expr(f(point)) : Halide::Expr(f(point)[i]));
    }
    return values;
}

/** What a reduction accumulates. */
struct Accumulation {
    Values initial;  // neutral
    /** (values so far, an element, or what there is of several) -> new values. A sum is `sum + term` or `sum + a * b` with strict_float terms: exactly
     *  these two shapes become an add and a fused multiply-add on every target. */
    std::function<Values(const Values &, const Values &)> accumulate;
    /** Merges two partial results; commutative. */
    std::function<Halide::Expr(const Halide::Expr &, const Halide::Expr &)> combine;

    Values combined(const Values &a, const Values &b) const {
        Values values;
        for (size_t k = 0; k < a.size(); k++) {
            values.push_back(combine(a[k], b[k]));
        }
        return values;
    }
};

/** Sums of so many terms of each element. */
inline Accumulation sums_of(size_t count, const std::function<Values(const Halide::Expr &)> &terms) {
    const auto accumulate = [=](const Values &sums, const Values &x) {
        Values next = terms(x[0]);
        for (size_t k = 0; k < count; k++) {
            next[k] = sums[k] + next[k];
        }
        return next;
    };
    return {Values(count, 0.0f), accumulate,
            [](const Halide::Expr &a, const Halide::Expr &b) { return Halide::strict_float(a + b); }};
}

/** Sums so many elements side by side, each for itself. */
inline Accumulation sums_of_elements(size_t count) {
    Accumulation sums = sums_of(count, {});
    sums.accumulate = [=](const Values &so_far, const Values &x) {
        Values next;
        for (size_t k = 0; k < count; k++) {
            next.push_back(so_far[k] + x[k]);
        }
        return next;
    };
    return sums;
}

inline Accumulation sum_of_elements() {
    return sums_of_elements(1);
}

inline Halide::Expr larger(const Halide::Expr &a, const Halide::Expr &b) {
    return Halide::strict_float(Halide::select(a > b, a, b));
}

/** The largest element, no less than `least`. */
inline Accumulation largest_element(const Halide::Expr &least) {
    return {{least}, [](const Values &so_far, const Values &x) { return Values{larger(so_far[0], x[0])}; }, larger};
}

constexpr int threads_per_warp = 32;

/** The threads that reduce a row. */
struct RowThreads {
    Halide::Expr warps;
    int elements_per_word;
    bool packed;  // rows are whole vectors
};

struct ThreadReduction {
    Halide::Func words;                // words(word, lane, warp, t): of one thread
    Halide::RDom vectors;              // the domain of its update
    Halide::Func thread;               // thread(lane, warp, t): its words combined
    std::vector<Halide::Func> halves;  // halves[i](lane, warp, t): combined with the thread 16, 8, 4, 2, 1 further
    Halide::Func warps;                // warps(lane, warp, t): the whole warp's in lane 0
    Halide::Func result;               // result(t)
    Halide::Var word{"word"}, lane{"lane"}, warp{"warp"};
};

/** See row_reduction.h. */
inline ThreadReduction reduce_row(const std::string &name, const Halide::Expr &width, const RowThreads &threads,
                                  const Halide::Var &t, const Accumulation &accumulation,
                                  const std::function<Values(const Halide::Expr &)> &element) {
    using namespace Halide;

    ThreadReduction r;
    r.words = Func(name + "_words");
    r.thread = Func(name + "_thread");
    r.warps = Func(name + "_warps");
    r.result = Func(name);
    const Var word = r.word, lane = r.lane, warp = r.warp;
    const int vector_elements = words_per_vector * threads.elements_per_word;

    const Expr stride = threads.warps * (threads_per_warp * vector_elements);
    r.vectors = RDom(0, (width + stride - 1) / stride, name + "_cell");
    const Expr vector = (r.vectors * threads.warps + warp) * threads_per_warp + lane;
    r.vectors.where(vector * vector_elements < width);

    r.words(word, lane, warp, t) = Tuple(accumulation.initial);
    Values values = values_at(r.words, {word, lane, warp, t});
    for (int part = 0; part < threads.elements_per_word; part++) {
        const Expr i = (vector * words_per_vector + word) * threads.elements_per_word + part;
        const Values next = accumulation.accumulate(values, element(threads.packed ? i : min(i, width - 1)));
        for (size_t k = 0; k < values.size(); k++) {
            values[k] = threads.packed ? next[k] : select(i < width, next[k], values[k]);
        }
    }
    r.words(word, lane, warp, t) = Tuple(values);

    const auto of_word = [&](int k) { return values_at(r.words, {k, lane, warp, t}); };
    r.thread(lane, warp, t) = Tuple(accumulation.combined(accumulation.combined(of_word(0), of_word(2)),
                                                          accumulation.combined(of_word(1), of_word(3))));

    Func wide = r.thread;
    for (int half = threads_per_warp / 2; half >= 1; half /= 2) {
        Func narrower(name + "_half" + std::to_string(half));
        // All lanes take part in every step, though the bound makes the sums of the later ones meaningless: a shuffle
        // is undefined if the lane that it reads has gone another way.
        const Expr other = min(lane + half, threads_per_warp - 1);
        narrower(lane, warp, t) =
            Tuple(accumulation.combined(values_at(wide, {lane, warp, t}), values_at(wide, {other, warp, t})));
        r.halves.push_back(narrower);
        wide = narrower;
    }
    r.warps(lane, warp, t) = Tuple(values_at(wide, {lane, warp, t}));

    const RDom each(0, threads.warps, name + "_warp");
    r.result(t) = Tuple(accumulation.initial);
    r.result(t) = Tuple(accumulation.combined(values_at(r.result, {t}), values_at(r.warps, {0, each, t})));
    return r;
}

}  // namespace halyard

#endif
