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

#include "roundings.h"
#include "row_storage.h"
#include "runtime/layout/device_attention.h"
#include "schedules/gpu.h"
#include "schedules/gpu_attention.h"

namespace halyard {
namespace {

using namespace Halide;

class AttentionSplit : public Generator<AttentionSplit> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};  // of keys and values
    GeneratorParam<bool> words{"words", false};                     // see row_storage.h

    Input<Buffer<float, 4>> q{"q"};                         // (feature, row, head of keys, batch)
    Input<Buffer<void, 4>> keys{"keys"}, values{"values"};  // (feature, position - base, head, batch)
    Input<float> scale{"scale"};
    Input<float> softcap{"softcap"};          // 0: none
    Input<int> first_split{"first_split"};    // of out
    Input<int> base{"base"};                  // position of the buffers' first
    Input<int> end_position{"end_position"};  // of all keys
    // Row r is of the query at position first_query + r / group, p, which sees keys > p - before and < p + after.
    Input<int> first_query{"first_query"}, group{"group"}, before{"before"}, after{"after"};
    Output<Buffer<float, 5>> out{"out"};  // (feature or statistic, row of a tile, tile of rows, split, head and batch)

    void configure() {
        keys.set_type(storage().type());
        values.set_type(storage().type());
    }

    void generate() {
        const Math math(get_target());
        const int in_cell = words ? words_per_cell * (dtype == DType::f32 ? 1 : 2) : 1;  // features
        const int words_in_cell = words ? words_per_cell : 1;
        const Expr features = q.dim(0).extent(), rows = q.dim(1).extent(), heads = q.dim(2).extent();
        const Expr cells = features / in_cell, head = hb % heads, batch = hb / heads;
        const Expr row = min(tile * split_rows + r, rows - 1);  // the last tile may be short
        const auto position = [&](const Expr &i) { return (first_split + split) * split_positions + i; };
        const auto stored_at = [&](const Expr &i) { return min(position(i), end_position - 1) - base; };
        const auto seen = [&](const Expr &i) {
            const Expr p = first_query + row / group;
            return position(i) < end_position && position(i) > p - before && position(i) < p + after;
        };

        // Scores, feature by feature.
        q_cell(e, r, cell, tile, hb) = q(cell * in_cell + e, row, head, batch);
        key_cell(w, cell, j, split, hb) = keys(cell * words_in_cell + w, stored_at(j), head, batch);
        value_cell(w, cell, j, split, hb) = values(cell * words_in_cell + w, stored_at(j), head, batch);
        key_cells = RDom(0, cells, "key_cells");
        const auto element = [&](const Func &of, const Expr &c, const Expr &i, int feature) {
            return storage().load([&](Expr index) { return of(index, c, i, split, hb); }, feature);
        };
        dot(r, j, tile, split, hb) = 0.0f;
        Expr sum = dot(r, j, tile, split, hb);
        for (int f = 0; f < in_cell; f++) {
            sum = math.fma(q_cell(f, r, key_cells, tile, hb), element(key_cell, key_cells, j, f), sum);
        }
        dot(r, j, tile, split, hb) = sum;
        const Expr plain = dot(r, j, tile, split, hb) * scale, capped = math.tanh(plain / softcap) * softcap;
        const Expr nothing = Float(32).min(), lowest = std::numeric_limits<float>::lowest();
        score(r, j, tile, split, hb) = select(seen(j), select(softcap > 0.0f, capped, plain), nothing);

        // The largest and the sum, by as many threads as a row of the block has, and then by one.
        const auto larger = [](const Expr &a, const Expr &b) { return select(a > b, a, b); };
        parts = RDom(0, split_positions / lanes, "parts");
        each_lane = RDom(0, lanes, "each_lane");
        lane_top(lane, r, tile, split, hb) = lowest;
        lane_top(lane, r, tile, split, hb) =
            larger(lane_top(lane, r, tile, split, hb), score(r, parts * lanes + lane, tile, split, hb));
        top(r, tile, split, hb) = lowest;
        top(r, tile, split, hb) = larger(top(r, tile, split, hb), lane_top(each_lane, r, tile, split, hb));
        // What a row does not see has the weight -1, so that 0 times infinity is NaN where it should be, and only
        // there.
        weight(r, j, tile, split, hb) =
            select(seen(j), math.exp(score(r, j, tile, split, hb) - top(r, tile, split, hb)), -1.0f);
        const Expr one = weight(r, parts * lanes + lane, tile, split, hb);
        lane_sum(lane, r, tile, split, hb) = 0.0f;
        lane_sum(lane, r, tile, split, hb) =
            select(one < 0.0f, lane_sum(lane, r, tile, split, hb), lane_sum(lane, r, tile, split, hb) + one);
        total(r, tile, split, hb) = 0.0f;
        total(r, tile, split, hb) = total(r, tile, split, hb) + lane_sum(each_lane, r, tile, split, hb);

        // Values: every slice of the threads takes every so manieth position.
        steps = RDom(0, split_positions / slices, "steps");
        const Expr at = steps * slices + slice, weight_at = weight(r, at, tile, split, hb);
        weighted(e, r, cell, slice, tile, split, hb) = 0.0f;
        const Expr so_far = weighted(e, r, cell, slice, tile, split, hb);
        std::vector<Expr> features_of_cell;
        for (int f = 0; f < in_cell; f++) {
            features_of_cell.push_back(element(value_cell, cell, at, f));
        }
        weighted(e, r, cell, slice, tile, split, hb) =
            select(weight_at < 0.0f, so_far,
                   math.fma(weight_at, in_cell == 1 ? features_of_cell[0] : mux(e, features_of_cell), so_far));
        of_slice(e, cell, r, slice, tile, split, hb) = weighted(e, r, cell, slice, tile, split, hb);

        const Expr feature = min(i, features - 1);
        Expr joined = 0.0f;
        for (int s = 0; s < slices; s++) {
            joined += of_slice(feature % in_cell, feature / in_cell, r, s, tile, split, hb);
        }
        out(i, r, tile, split, hb) =
            select(i < features, joined, i == features, top(r, tile, split, hb), total(r, tile, split, hb));
        cell_features = in_cell;
    }

    void schedule() {
        keep_roundings(get_pipeline(), get_target());
        for (auto *buffer : {&keys, &values}) {
            buffer->dim(0).set_min(0);
            buffer->dim(1).set_min(0);
        }
        out.dim(0).set_min(0);
        out.dim(1).set_bounds(0, split_rows);
        if (using_autoscheduler()) {
            return;
        }
        if (words) {
            schedules::gpu::promise_cells_of_heads(q);
            schedules::gpu::promise_cells_of_heads(keys);
            schedules::gpu::promise_cells_of_heads(values);
        }
        schedules::gpu::attention_split({q_cell, key_cell,  value_cell, dot,       score,        lane_top,
                                         top,    weight,    lane_sum,   total,     weighted,     of_slice,
                                         out,    key_cells, parts,      each_lane, steps,        e,
                                         w,      r,         j,          lane,      cell,         slice,
                                         i,      tile,      split,      hb,        cell_features},
                                        words, get_target());
    }

private:
    static constexpr int lanes = schedules::gpu::attention_lanes, slices = schedules::gpu::attention_slices;

    RowStorage storage() const { return RowStorage(dtype, get_target(), words); }

    // feature and word of a cell; row of a tile; position of a split; lane; cell; slice; feature or statistic
    Var e{"e"}, w{"w"}, r{"r"}, j{"j"}, lane{"lane"}, cell{"cell"}, slice{"slice"}, i{"i"};
    Var tile{"tile"}, split{"split"}, hb{"hb"};
    Func q_cell{"q_cell"}, key_cell{"key_cell"}, value_cell{"value_cell"}, dot{"dot"}, score{"score"};
    Func lane_top{"lane_top"}, top{"top"}, weight{"weight"}, lane_sum{"lane_sum"}, total{"total"};
    Func weighted{"weighted"}, of_slice{"of_slice"};
    RDom key_cells, parts, each_lane, steps;
    int cell_features = 1;
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::AttentionSplit, attention_split)
