// y = log of the sum of exp(score) over the keys a row sees: its maximum and the log of the sum that attention_combine.cpp leaves;
// -inf where the sum is 0.
#include "Halide.h"

#include "math.h"
#include "schedules/attention.h"
#include "schedules/kernel_tensors.h"

namespace halyard {
namespace {

using namespace Halide;

class AttentionLogSumExp : public Generator<AttentionLogSumExp> {
public:
    KernelTensors tensors;

    Input<Buffer<float, 2>> statistics{"statistics"};  // (row, maximum or sum), the rows a multiple of 16
    Output<Buffer<float, 2>> y{"y"};                   // (row, 0)

    void configure() { tensors.configure(*this); }

    void generate() {
        const Math math = Math::of_strict(get_target());
        y(row, part) = strict_float(statistics(row, 0) + strict_float(math.log(statistics(row, 1))));
    }

    void schedule() {
        statistics.dim(0).set_min(0);
        statistics.dim(1).set_bounds(0, 2);
        y.dim(1).set_bounds(0, 1);
        tensors.begin_schedule(*this);
        schedules::attention_statistics(y, row, part, get_target());
    }

private:
    Var row{"row"}, part{"part"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::AttentionLogSumExp, attention_log_sum_exp)
