// The softmax of attention between two matrix products, for GPUs: of a block of scores, every one of which counts, the
// maximum m of each row, and the sum of the probabilities exp(t(j) - m), t = score_scale x (attention_block_weights.cpp).
// attention_split.cpp says what becomes of the two numbers of a row.
//
// The sum is that of the probabilities as they are stored, so that what the second product makes of them is a mean.
#include <limits>

#include "Halide.h"

#include "math.h"
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

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::AttentionBlockSums, attention_block_sums)
