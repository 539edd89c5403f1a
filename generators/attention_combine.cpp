// The results of attention's blocks of keys (attention_softmax.cpp), combined in order by their maxima: the result of some
// blocks and that of the block after them, as one.
#include "Halide.h"

#include "math.h"
#include "schedules/attention.h"
#include "schedules/kernel_tensors.h"
#include "schedules/thread_reduction.h"

namespace halyard {
namespace {

using namespace Halide;

class AttentionMerge : public Generator<AttentionMerge> {
public:
    KernelTensors tensors;
    schedules::AttentionParams params;

    // statistics(row, 0) is a maximum, statistics(row, 1) a sum; their rows are a multiple of 16.
    Input<Buffer<float, 2>> so_far{"so_far"}, block{"block"};                  // statistics
    Input<Buffer<float, 2>> values_so_far{"values_so_far"}, values{"values"};  // (feature, row), weighted
    Output<Buffer<float, 2>> factors{"factors"};                               // factors(row, so far or block)
    Output<Buffer<float, 2>> statistics{"statistics"};
    Output<Buffer<float, 2>> y{"y"};  // (feature, row); may be values_so_far

    void configure() { tensors.configure(*this); }

    void generate() {
        const Math math = Math::of_strict(get_target());
        const Expr maximum = larger(so_far(row, 0), block(row, 0));
        const auto factor = [&](const Expr &its_maximum) {
            return strict_float(math.exp(strict_float(its_maximum - maximum)));
        };
        factors(row, part) = mux(part, {factor(so_far(row, 0)), factor(block(row, 0))});
        const auto combined = [&](const Expr &a, const Expr &b) {
            return strict_float(math.fma(b, factors(row, 1), a * factors(row, 0)));
        };
        statistics(row, part) = mux(part, {maximum, combined(so_far(row, 1), block(row, 1))});
        y(feature, row) = combined(values_so_far(feature, row), values(feature, row));
    }

    void schedule() {
        for (OutputImageParam buffer : {OutputImageParam(so_far), OutputImageParam(block), OutputImageParam(factors),
                                        OutputImageParam(statistics)}) {
            buffer.dim(0).set_min(0);
            buffer.dim(1).set_bounds(0, 2);
        }
        y.dim(1).set_min(0);
        tensors.begin_schedule(*this);
        schedules::attention_statistics(factors, row, part, get_target());
        schedules::attention_statistics(statistics, row, part, get_target());
        schedules::attention_rows(y, feature, params, get_target());
    }

private:
    Var feature{"feature"}, row{"row"}, part{"part"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::AttentionMerge, attention_merge)
