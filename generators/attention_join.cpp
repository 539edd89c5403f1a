// The result of attention from those of its splits (attention_split.cpp), for GPUs: y = sum f o / sum f l over the
// splits in order, f = exp(m - the largest m); 0 where a row sees no key.
#include <limits>

#include "Halide.h"

#include "roundings.h"
#include "row_storage.h"
#include "runtime/layout/device_attention.h"
#include "schedules/gpu_attention.h"

namespace halyard {
namespace {

using namespace Halide;

class AttentionJoin : public Generator<AttentionJoin> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};  // of y

    Input<Buffer<float, 4>> partial{"partial"};  // (feature or statistic, row, split, head and batch)
    Output<Buffer<void, 5>> y{"y"};              // (feature, head of the group, token, head of keys, batch)

    void configure() { y.set_type(storage().type()); }

    void generate() {
        const Math math(get_target());
        const Expr features = y.dim(0).extent(), group = y.dim(1).extent(), heads = y.dim(3).extent();
        splits = RDom(0, partial.dim(2).extent(), "splits");
        const auto of_split = [&](const Expr &i) {
            return partial(i, token * group + member, splits, batch * heads + head);
        };
        const std::vector<Var> at = {d, member, token, head, batch};
        const Expr top = of_split(features);
        largest(at) = std::numeric_limits<float>::lowest();
        largest(at) = select(largest(at) > top, largest(at), top);
        const Expr factor = math.exp(top - largest(at));
        sums(at) = Tuple(0.0f, 0.0f);
        sums(at) =
            Tuple(math.fma(of_split(d), factor, sums(at)[0]), math.fma(of_split(features + 1), factor, sums(at)[1]));
        // A sum is 0 or at least about 1: it holds exp(0) of the maximum. Adding 0 makes +0 of -0.
        const Expr inverse = select(sums(at)[1] == 0.0f, 0.0f, 1.0f / sums(at)[1]);
        const auto element = [&](const Expr &) { return strict_float((sums(at)[0] + 0.0f) * inverse); };
        y(at) = storage().store(element, d);
    }

    void schedule() {
        keep_roundings(get_pipeline(), get_target());
        partial.dim(0).set_min(0);
        partial.dim(2).set_min(0);
        y.dim(0).set_min(0);
        if (using_autoscheduler()) {
            return;
        }
        schedules::gpu::attention_join({y, {largest, sums}, d, member, token, head, batch}, get_target());
    }

private:
    RowStorage storage() const { return RowStorage(dtype, get_target(), false); }

    Var d{"d"}, member{"member"}, token{"token"}, head{"head"}, batch{"batch"};
    Func largest{"largest"}, sums{"sums"};
    RDom splits;
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::AttentionJoin, attention_join)
