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
#include "runtime/layout/device_attention.h"
#include "schedules/gpu_attention.h"
#include "schedules/kernel_tensors.h"

namespace halyard {
namespace {

using namespace Halide;

class AttentionSplit : public Generator<AttentionSplit> {
public:
    KernelTensors tensors;                                  // dtype: of keys and values
    Input<Buffer<float, 4>> q{"q"};                         // (feature, row, head of keys, batch)
    Input<Buffer<void, 4>> keys{"keys"}, values{"values"};  // (feature, position - base, head, batch)
    Input<float> scale{"scale"}, softcap{"softcap"};        // softcap 0: none
    Input<int> first_split{"first_split"};                  // of out
    Input<int> base{"base"};                                // position of the buffers' first
    Input<int> end_position{"end_position"};                // of all keys
    // Row r is of the query at position first_query + r / group, p, which sees keys > p - before and < p + after.
    Input<int> first_query{"first_query"}, group{"group"}, before{"before"}, after{"after"};
    Output<Buffer<float, 5>> out{"out"};  // (feature or statistic, row of a tile, tile of rows, split, head and batch)

    void configure() {
        tensors.configure(*this);
        keys.set_type(tensors.type());
        values.set_type(tensors.type());
    }

    void generate() {
        const Math math(get_target());
        const Var e = s.e, w = s.w, r = s.r, j = s.j, lane = s.lane, vector = s.vector, slice = s.slice, tile = s.tile,
                  split = s.split, hb = s.hb;
        const auto in = [&](const Func &f, const auto &...where) {
            return f(std::vector<Expr>{where..., tile, split, hb});
        };
        const Expr features = q.dim(0).extent(), heads = q.dim(2).extent(), head = hb % heads, batch = hb / heads;
        const Expr row = min(tile * split_rows + r, q.dim(1).extent() - 1);  // the last tile may be short
        const auto position = [&](const Expr &of) { return (first_split + split) * split_positions + of; };
        const auto stored_at = [&](const Expr &of) { return min(position(of), end_position - 1) - base; };
        const Expr p = first_query + row / group;
        const Expr seen = position(j) < end_position && position(j) > p - before && position(j) < p + after;

        // Scores, feature by feature.
        const int words = tensors.vector_words(), elements = tensors.vector_elements();
        s.q_vector(e, r, vector, tile, hb) = q(vector * elements + e, row, head, batch);
        s.key_vector(w, vector, j, split, hb) = keys(vector * words + w, stored_at(j), head, batch);
        s.value_vector(w, vector, j, split, hb) = values(vector * words + w, stored_at(j), head, batch);
        s.key_vectors = RDom(0, features / elements, "key_cells");
        in(s.dot, r, j) = 0.0f;
        Expr sum = in(s.dot, r, j);
        for (int f = 0; f < elements; f++) {
            const Expr key = tensors.access({s.key_vectors, j, split, hb})(s.key_vector, f);
            sum = math.fma(s.q_vector(f, r, s.key_vectors, tile, hb), key, sum);
        }
        in(s.dot, r, j) = sum;
        const Expr plain = in(s.dot, r, j) * scale, capped = math.tanh(plain / softcap) * softcap;
        in(s.score, r, j) = select(seen, select(softcap > 0.0f, capped, plain), Float(32).min());

        // The maximum and the sum, by as many threads as a row of the block has, and then by one.
        constexpr int lanes = schedules::gpu::attention_lanes, slices = schedules::gpu::attention_slices;
        s.parts = RDom(0, split_positions / lanes, "parts");
        s.each_lane = RDom(0, lanes, "each_lane");
        in(s.lane_max, lane, r) = std::numeric_limits<float>::lowest();
        in(s.lane_max, lane, r) = larger(in(s.lane_max, lane, r), in(s.score, r, s.parts * lanes + lane));
        in(s.row_max, r) = std::numeric_limits<float>::lowest();
        in(s.row_max, r) = larger(in(s.row_max, r), in(s.lane_max, s.each_lane, r));
        // What a row does not see has the probability -1, so that 0 times infinity is NaN where it should be, and only
        // there.
        in(s.probability, r, j) = select(seen, math.exp(in(s.score, r, j) - in(s.row_max, r)), -1.0f);
        const Expr one = in(s.probability, r, s.parts * lanes + lane);
        in(s.lane_sum, lane, r) = 0.0f;
        in(s.lane_sum, lane, r) = select(one < 0.0f, in(s.lane_sum, lane, r), in(s.lane_sum, lane, r) + one);
        in(s.total, r) = 0.0f;
        in(s.total, r) += in(s.lane_sum, s.each_lane, r);

        // Values: every slice of the threads takes every so manieth position.
        s.steps = RDom(0, split_positions / slices, "steps");
        const Expr at = s.steps * slices + slice, probability = in(s.probability, r, at);
        in(s.weighted, e, r, vector, slice) = 0.0f;
        const Expr so_far = in(s.weighted, e, r, vector, slice);
        std::vector<Expr> value;
        for (int f = 0; f < elements; f++) {
            value.push_back(tensors.access({vector, at, split, hb})(s.value_vector, f));
        }
        in(s.weighted, e, r, vector, slice) =
            select(probability < 0.0f, so_far, math.fma(probability, elements == 1 ? value[0] : mux(e, value), so_far));
        in(s.of_slice, e, vector, r, slice) = in(s.weighted, e, r, vector, slice);

        const Expr feature = min(s.i, features - 1);
        Expr combined = 0.0f;
        for (int k = 0; k < slices; k++) {
            combined += in(s.of_slice, feature % elements, feature / elements, r, k);
        }
        out(s.i, r, tile, split, hb) =
            select(s.i < features, combined, s.i == features, in(s.row_max, r), in(s.total, r));
    }

    void schedule() {
        for (auto *buffer : {&keys, &values}) {
            buffer->dim(0).set_min(0);
            buffer->dim(1).set_min(0);
        }
        out.dim(0).set_min(0);
        out.dim(1).set_bounds(0, split_rows);
        tensors.promise_heads(q, keys, values);
        tensors.begin_schedule(*this);
        schedules::gpu::attention_split(s, out, tensors.vector_words(), tensors.vector_elements(), get_target());
    }

private:
    schedules::gpu::AttentionSplit s;
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::AttentionSplit, attention_split)
