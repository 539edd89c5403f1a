// Reductions over a row by the threads of a GPU, with a result that depends on the row and its width alone.
//
// A row is dealt to warps of 32 threads in cells of four words (16 bytes): the first cell to the first thread of the first
// warp, and so on, over and over. Each thread accumulates its four words apart from each other, in order; they are joined
// by halves, so are the 32 threads of a warp, and the warps follow one after the other. The number of warps is the
// caller's choice, which must be a function of the width. Whether the words are read four at once (`whole_cells`) or
// element by element makes no difference to the result.
#ifndef HALYARD_GENERATORS_THREAD_REDUCTION_H
#define HALYARD_GENERATORS_THREAD_REDUCTION_H

#include <functional>
#include <string>
#include <vector>

#include "Halide.h"

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

constexpr int threads_per_warp = 32;
constexpr int words_per_cell = 4;

/** The threads that reduce a row. */
struct RowThreads {
    Halide::Expr warps;
    int elements_per_word;
    bool whole_cells;  // rows are a multiple of a cell wide
};

struct ThreadReduction {
    Halide::Func words;                // words(word, lane, warp, t): of one thread
    Halide::RDom cells;                // the domain of its update
    Halide::Func thread;               // thread(lane, warp, t): its words joined
    std::vector<Halide::Func> halves;  // halves[i](lane, warp, t): joined with the thread 16, 8, 4, 2, 1 further
    Halide::Func warps;                // warps(lane, warp, t): the whole warp's in lane 0
    Halide::Func result;               // result(t)
    Halide::Var word{"word"}, lane{"lane"}, warp{"warp"};
};

/** See row_reduction.h. */
inline ThreadReduction reduce_row(const std::string &name, Halide::Expr width, const RowThreads &threads, Halide::Var t,
                                  const Values &initial,
                                  const std::function<Values(const Values &, Halide::Expr)> &accumulate,
                                  const std::function<Halide::Expr(Halide::Expr, Halide::Expr)> &combine) {
    using namespace Halide;

    ThreadReduction r;
    r.words = Func(name + "_words");
    r.thread = Func(name + "_thread");
    r.warps = Func(name + "_warps");
    r.result = Func(name);
    const Var word = r.word, lane = r.lane, warp = r.warp;
    const int cell_elements = words_per_cell * threads.elements_per_word;

    const Expr stride = threads.warps * (threads_per_warp * cell_elements);
    r.cells = RDom(0, (width + stride - 1) / stride, name + "_cell");
    const Expr cell = (r.cells * threads.warps + warp) * threads_per_warp + lane;
    r.cells.where(cell * cell_elements < width);

    r.words(word, lane, warp, t) = Tuple(initial);
    Values values = values_at(r.words, {word, lane, warp, t});
    for (int part = 0; part < threads.elements_per_word; part++) {
        const Expr i = (cell * words_per_cell + word) * threads.elements_per_word + part;
        const Values next = accumulate(values, threads.whole_cells ? i : min(i, width - 1));
        for (size_t k = 0; k < values.size(); k++) {
            values[k] = threads.whole_cells ? next[k] : select(i < width, next[k], values[k]);
        }
    }
    r.words(word, lane, warp, t) = Tuple(values);

    const auto join = [&](const Values &a, const Values &b) {
        Values joined;
        for (size_t k = 0; k < a.size(); k++) {
            joined.push_back(combine(a[k], b[k]));
        }
        return joined;
    };
    const auto of_word = [&](int k) { return values_at(r.words, {k, lane, warp, t}); };
    r.thread(lane, warp, t) = Tuple(join(join(of_word(0), of_word(2)), join(of_word(1), of_word(3))));

    Func wide = r.thread;
    for (int half = threads_per_warp / 2; half >= 1; half /= 2) {
        Func narrower(name + "_half" + std::to_string(half));
        // All lanes take part in every step, though the bound makes the sums of the later ones meaningless: a shuffle
        // is undefined if the lane that it reads has gone another way.
        const Expr other = min(lane + half, threads_per_warp - 1);
        narrower(lane, warp, t) = Tuple(join(values_at(wide, {lane, warp, t}), values_at(wide, {other, warp, t})));
        r.halves.push_back(narrower);
        wide = narrower;
    }
    r.warps(lane, warp, t) = Tuple(values_at(wide, {lane, warp, t}));

    const RDom each(0, threads.warps, name + "_warp");
    r.result(t) = Tuple(initial);
    r.result(t) = Tuple(join(values_at(r.result, {t}), values_at(r.warps, {0, each, t})));
    return r;
}

}  // namespace halyard

#endif
