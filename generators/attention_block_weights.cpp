// The probabilities of a block of scores in attention between two matrix products, for GPUs: exp(t(j) - m), t = score_scale x,
// m of each row as attention_block.cpp found it.
#include "Halide.h"

#include "math.h"
#include "schedules/gpu_attention.h"
#include "schedules/kernel_tensors.h"

namespace halyard {
namespace {

using namespace Halide;

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

HALIDE_REGISTER_GENERATOR(halyard::AttentionBlockWeights, attention_block_weights)
