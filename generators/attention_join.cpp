// The result of attention from those of its splits (attention_split.cpp), for GPUs: y = sum f o / sum f l over the
// splits in order, f = exp(m - the largest m); 0 where a row sees no key.
#include <limits>

#include "Halide.h"

#include "math.h"
#include "schedules/gpu_attention.h"
#include "schedules/kernel_tensors.h"
#include "schedules/thread_reduction.h"

namespace halyard {
namespace {

using namespace Halide;

class AttentionJoin : public Generator<AttentionJoin> {
public:
    KernelTensors tensors;
    Input<Buffer<float, 4>> partial{"partial"};  // (feature or statistic, row, split, head and batch)
    Output<Buffer<void, 5>> y{"y"};              // (feature, head of the group, token, head of keys, batch)

    void configure() { tensors.configure(*this, y); }

    void generate() {
        const Math math(get_target());
        const Expr features = y.dim(0).extent(), group = y.dim(1).extent(), heads = y.dim(3).extent();
        const RDom splits(0, partial.dim(2).extent(), "splits");
        const auto of_split = [&](const Expr &i) {
            return partial(i, token * group + member, splits, batch * heads + head);
        };
        const std::vector<Var> at = {d, member, token, head, batch};
        row_max(at) = std::numeric_limits<float>::lowest();
        row_max(at) = larger(row_max(at), of_split(features));
        const Expr factor = math.exp(of_split(features) - row_max(at));
        sums(at) = Tuple(0.0f, 0.0f);
        sums(at) =
            Tuple(math.fma(of_split(d), factor, sums(at)[0]), math.fma(of_split(features + 1), factor, sums(at)[1]));
        // A sum is 0 or at least about 1: it holds exp(0) of the maximum. Adding 0 makes +0 of -0.
        const Expr inverse = select(sums(at)[1] == 0.0f, 0.0f, 1.0f / sums(at)[1]);
        y(at) = tensors.storage().narrow((sums(at)[0] + 0.0f) * inverse);
    }

    void schedule() {
        partial.dim(0).set_min(0);
        partial.dim(2).set_min(0);
        y.dim(0).set_min(0);
        tensors.begin_schedule(*this);
        schedules::gpu::attention_join({y, {row_max, sums}, d, member, token, head, batch}, get_target());
    }

private:
    Var d{"d"}, member{"member"}, token{"token"}, head{"head"}, batch{"batch"};
    Func row_max{"largest"}, sums{"sums"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::AttentionJoin, attention_join)
