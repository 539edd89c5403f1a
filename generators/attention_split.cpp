// Attention of a few rows to 128 positions of keys and values, for GPUs: each split of the positions is read once, by
// one block of threads, for all rows (query, head of the group) that see it, and makes a partial result of each:
//
//     t(j) = scale q.k(j), or cap tanh(scale q.k(j) / cap)     of the positions j that the row sees
//     m = max t(j),  l = sum exp(t(j) - m),  o = sum exp(t(j) - m) v(j)
//
// attention_join.cpp makes one of the results of all splits. Sums are in an order that follows from the position alone,
// and what a row does not see is left out of them: its bits do not depend on what else is computed.
#include <limits>

#include "Halide.h"

#include "math.h"
#include "schedules/split_kernel.h"
#include "schedules/thread_reduction.h"

namespace halyard {
namespace {

using namespace Halide;

class AttentionSplit : public Generator<AttentionSplit> {
public:
    SplitKernel kernel;                                     // dtype: of keys and values
    Input<Buffer<float, 4>> q{"q"};                         // (feature, row, head of keys, batch)
    Input<Buffer<void, 4>> keys{"keys"}, values{"values"};  // (feature, position - base, head, batch)
    Input<float> scale{"scale"}, softcap{"softcap"};        // softcap 0: none
    Input<int> first_split{"first_split"};                  // of out
    Input<int> base{"base"};                                // position of the buffers' first
    Input<int> end_position{"end_position"};                // of all keys
    // Row r is of the query at position first_query + r / group, p, which sees keys > p - before and < p + after.
    Input<int> first_query{"first_query"}, group{"group"}, before{"before"}, after{"after"};
    Output<Buffer<float, 5>> out{"out"};  // (feature or statistic, row of a tile, tile of rows, split, head and batch)

    void configure() { kernel.configure(*this, keys, values); }

    void generate() {
        const Math math(get_target());
        const auto &s = kernel.s;
        const auto fma = [&](const Expr &a, const Expr &b, const Expr &c) { return math.fma(a, b, c); };
        const Expr features = q.dim(0).extent(), heads = q.dim(2).extent(), head = s.hb % heads, batch = s.hb / heads;
        const Expr row = min(s.tile * split_rows + s.r, q.dim(1).extent() - 1);  // the last tile may be short
        const Expr position = (first_split + s.split) * split_positions + s.j, p = first_query + row / group;
        const Expr seen = position < end_position && position > p - before && position < p + after;
        const Expr stored = min(position, end_position - 1) - base;

        const Expr dot = kernel.dot(
            features, [&](const Expr &i) { return q(i, row, head, batch); },
            [&](const Expr &i) { return keys(i, stored, head, batch); }, fma);
        const Expr plain = dot * scale, capped = math.tanh(plain / softcap) * softcap;
        kernel.in(s.score, s.r, s.j) = select(seen, select(softcap > 0.0f, capped, plain), Float(32).min());
        const Expr lowest = std::numeric_limits<float>::lowest();
        const Expr row_max = kernel.reduce(s.lane_max, s.row_max, s.score, lowest, larger, larger);
        // What a row does not see has the probability -1, so that 0 times infinity is NaN where it should be, and only
        // there.
        const auto if_seen = [](const Expr &probability, const Expr &sum, const Expr &next) {
            return select(probability < 0.0f, sum, next);
        };
        kernel.in(s.probability, s.r, s.j) = select(seen, math.exp(kernel.in(s.score, s.r, s.j) - row_max), -1.0f);
        const Expr total = kernel.reduce(
            s.lane_sum, s.total, s.probability, 0.0f,
            [&](const Expr &sum, const Expr &one) { return if_seen(one, sum, sum + one); }, std::plus<Expr>());
        const Expr weighted = kernel.weighted(
            min(s.i, features - 1), [&](const Expr &i) { return values(i, stored, head, batch); },
            [&](const Expr &weight, const Expr &value, const Expr &sum) {
                return if_seen(weight, sum, fma(weight, value, sum));
            });
        out(s.i, s.r, s.tile, s.split, s.hb) = select(s.i < features, weighted, s.i == features, row_max, total);
    }

    void schedule() { kernel.schedule(*this, q, keys, values, out); }
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::AttentionSplit, attention_split)
