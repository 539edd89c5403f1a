// The softmax of attention between two matrix products, for GPUs: of a block of scores, every one of which counts, the
// maximum m of each row, and the probabilities exp(t(j) - m), t = score_scale x, with their sum. attention_split.cpp says
// what becomes of the two numbers of a row.
//
// The sum is that of the probabilities as they are stored, so that what the second product makes of them is a mean.
#include <limits>

#include "Halide.h"

#include "math.h"
#include "schedules/gpu_attention.h"
#include "schedules/row_kernel.h"

namespace halyard {
namespace {

using namespace Halide;

class AttentionBlockSums : public Generator<AttentionBlockSums> {
public:
    RowKernel row{RowWork::statistics, DType::f32};  // dtype is that of the probabilities
    Input<Buffer<void, 2>> scores{"scores"};
    Input<float> score_scale{"score_scale"};

    void configure() {
        row.configure(*this);
        row.tensors.add(*this, scores, DType::f32);
        row.add_statistics(*this, 2);  // maximum, sum
    }

    void generate() {
        constexpr int lanes = 64;
        const Math math(get_target());
        const Expr width = row.width_of(scores);
        const Element score = [&](const ElementAccess &at, const Expr &i) { return at(scores, i) * score_scale; };
        // The least number, not -infinity: a row of -infinity has no probability at all.
        const Expr least = std::numeric_limits<float>::lowest();
        const Expr row_max = row.reduce("top", width, lanes, largest_element(least), score);
        const Element probability = [&](const ElementAccess &at, const Expr &i) {
            return row.tensors.access({}).rounded(math.exp(score(at, i) - row_max));
        };
        const Expr sum = row.reduce("sum", width, lanes, sum_of_elements(), probability);
        row.write_statistics({row_max, sum});
    }

    void schedule() { row.schedule(*this); }
};

class AttentionBlockWeights : public Generator<AttentionBlockWeights> {
public:
    KernelTensors tensors;
    Input<Buffer<void, 2>> scores{"scores"};
    Input<float> score_scale{"score_scale"};
    Input<Buffer<float, 1>> row_max{"top"};
    Output<Buffer<void, 2>> y{"y"};

    void configure() {
        tensors.configure(*this, y);
        tensors.add(*this, scores, DType::f32);
    }

    void generate() {
        const Math math(get_target());
        row_max.dim(0).set_min(0).set_stride(Expr());
        loaded(d, t) = scores(d, t);
        const Element probability = [&](const ElementAccess &, const Expr &i) {
            return math.exp(loaded(i, t) * score_scale - row_max(t));
        };
        results(d, t) = tensors.access({t}).store(probability, d);
        y(d, t) = results(d, t);
    }

    void schedule() {
        tensors.begin_schedule(*this);
        schedules::gpu::attention_block_weights({y, loaded, results, d, t}, get_target());
    }

private:
    Var d{"d"}, t{"t"};  // position, row
    Func loaded{"loaded"}, results{"results"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::AttentionBlockSums, attention_block_sums)
HALIDE_REGISTER_GENERATOR(halyard::AttentionBlockWeights, attention_block_weights)
