// Between the products of attention's gradient: weights and the gradient of the scores, from a block of scores and of the
// products of values with dy. Rows are keys, columns queries.
#include "Halide.h"

#include "math.h"
#include "schedules/attention.h"
#include "schedules/kernel_tensors.h"

namespace halyard {
namespace {

using namespace Halide;

// p = exp(scale s - log_sum_exp), ds = scale p (dp - dot); 0 where the query does not see the key. p may be s, and ds dp.
class AttentionGradient : public Generator<AttentionGradient> {
public:
    KernelTensors tensors;
    schedules::AttentionParams params;

    Input<Buffer<float, 2>> s{"s"}, dp{"dp"};            // (query, key)
    Input<Buffer<float, 1>> log_sum_exp{"log_sum_exp"};  // (query)
    Input<Buffer<float, 1>> dot{"dot"};                  // (query), of the result and its gradient
    Input<float> scale{"scale"};
    Input<int> first{"first"}, end{"end"};  // key i is seen by queries [i + first, i + end)
    Output<Buffer<float, 2>> p{"p"}, ds{"ds"};

    void configure() { tensors.configure(*this); }

    void generate() {
        const Math math = Math::of_strict(get_target());
        const Expr seen = query >= key + first && query < key + end;
        const Expr weight = math.exp(strict_float(math.fma(s(query, key), scale, -log_sum_exp(query))));
        p(query, key) = select(seen, strict_float(weight), 0.0f);
        const Expr centred = strict_float(dp(query, key) - dot(query));
        const Expr gradient = strict_float(strict_float(p(query, key) * centred) * scale);
        ds(query, key) = select(seen, gradient, 0.0f);
    }

    void schedule() {
        begin_at_zero(s, dp, p, ds);
        tensors.begin_schedule(*this);
        schedules::attention_rows(p, query, params, get_target());
        schedules::attention_rows(ds, query, params, get_target());
    }

private:
    Var query{"query"}, key{"key"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::AttentionGradient, attention_gradient)
