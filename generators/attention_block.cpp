// The softmax of attention between two matrix products, for GPUs: of a block of scores, every one of which counts, the
// largest of each row, and the weights w(j) = exp(t(j) - top), t = score_scale x, with their sum. attention_split.cpp
// says what becomes of the two numbers of a row.
//
// The sum is that of the weights as they are stored, so that what the second product makes of them is a mean.
#include <limits>

#include "Halide.h"

#include "roundings.h"
#include "row_reduction.h"
#include "row_storage.h"
#include "row_threads.h"
#include "schedules/gpu.h"
#include "schedules/gpu_attention.h"

namespace halyard {
namespace {

using namespace Halide;

/** The weight of a score. */
Expr weight_of(const Expr &score, const Expr &top, const Target &target) {
    const Math math(target.with_feature(Target::StrictFloat));
    return strict_float(math.exp(strict_float(score - top)));
}

class AttentionBlockSums : public Generator<AttentionBlockSums> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f16, dtype_names};  // of the weights
    GeneratorParam<bool> words{"words", true};                      // see row_storage.h

    Input<Buffer<float, 2>> scores{"scores"};
    Input<float> score_scale{"score_scale"};
    RowThreadInputs threads;

    void configure() {
        threads.add_to(*this);
        // [1] each: the largest, and the sum.
        outputs = add_output<Func>("y", std::vector<Type>{Float(32), Float(32)}, 2);
    }

    void generate() {
        constexpr int lanes = 64;
        const RowThreads dealt = threads.threads(DType::f32, words);
        const Expr width = scores.dim(0).extent();
        const Feature score = [&](Expr i) { return strict_float(scores(i, t) * score_scale); };
        const auto larger = [](Expr a, Expr b) { return strict_float(select(a > b, a, b)); };
        // The least number, not -infinity: a row of -infinity has no weight at all.
        top = reduce_row(
            "top", width, lanes, t, {std::numeric_limits<float>::lowest()}, score,
            [&](const Values &so_far, const Expr &x) { return Values{larger(so_far[0], x)}; }, larger, &dealt);
        const RowStorage storage(dtype, get_target(), false);
        sum = reduce_row(
            "sum", width, lanes, t, {0.0f},
            [&](Expr i) { return storage.rounded(weight_of(score(i), top.result(t), get_target())); },
            [](const Values &so_far, const Expr &x) { return Values{so_far[0] + x}; }, exact_sum, &dealt);
        y(value, t) = Tuple(top.result(t), sum.result(t));
        *outputs = y;
    }

    void schedule() {
        keep_roundings(get_pipeline(), get_target());
        y.output_buffers()[0].dim(0).set_bounds(0, 1);
        if (using_autoscheduler()) {
            return;
        }
        if (words) {
            schedules::gpu::promise_cells(scores);
        }
        schedules::gpu::row({{top, sum}, {}, y, value, t, scores.dim(0).extent()}, threads.statistics_params(words),
                            get_target());
    }

private:
    GeneratorOutput<Func> *outputs = nullptr;
    Func y{"y"};
    Var value{"value"}, t{"t"};  // t: row
    RowReduction top, sum;
};

class AttentionBlockWeights : public Generator<AttentionBlockWeights> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f16, dtype_names};
    GeneratorParam<bool> words{"words", true};  // see row_storage.h

    Input<Buffer<float, 2>> scores{"scores"};
    Input<float> score_scale{"score_scale"};
    Input<Buffer<float, 1>> top{"top"};  // of each row
    Output<Buffer<void, 2>> y{"y"};

    void configure() { y.set_type(storage().type()); }

    void generate() {
        loaded(d, t) = scores(d, t);
        const auto element = [&](Expr i) {
            return weight_of(strict_float(loaded(i, t) * score_scale), top(t), get_target());
        };
        results(d, t) = storage().store_result(element, d);
        y(d, t) = results(d, t);
    }

    void schedule() {
        keep_roundings(get_pipeline(), get_target());
        if (using_autoscheduler()) {
            return;
        }
        top.dim(0).set_min(0).set_stride(Expr());
        schedules::gpu::promise_cells(scores, y);
        schedules::gpu::attention_block_weights({y, loaded, results, d, t}, get_target());
    }

private:
    RowStorage storage() const { return RowStorage(dtype, get_target(), words); }

    Var d{"d"}, t{"t"};  // position, row
    Func loaded{"loaded"}, results{"results"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::AttentionBlockSums, attention_block_sums)
HALIDE_REGISTER_GENERATOR(halyard::AttentionBlockWeights, attention_block_weights)
