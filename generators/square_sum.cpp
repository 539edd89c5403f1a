// Sums of squares: sums(lane) = the sum of x(lane, row)^2 over the rows, in f64 and in their order. The squares are exact.
#include "Halide.h"

#include "runtime/layout/square_sum.h"
#include "schedules/kernel_tensors.h"
#include "schedules/pack.h"

namespace halyard {
namespace {

using namespace Halide;

class SquareSum : public Generator<SquareSum> {
public:
    KernelTensors tensors;
    schedules::PackParams params;  // of the family; it has nothing to choose here

    Input<Buffer<void, 2>> x{"x"};  // x(lane, row), the rows one after the other
    Output<Buffer<double, 1>> sums{"sums"};

    void configure() { tensors.configure(*this, x); }

    void generate() {
        const RDom row(0, x.dim(1).extent(), "row");
        k = row.x;
        element(lane, i) = tensors.storage().widen(x(lane, i));
        const Expr wide = cast<double>(element(lane, k));
        sum(lane) = cast<double>(0);
        sum(lane) = strict_float(sum(lane) + wide * wide);
        sums(lane) = sum(lane);
    }

    void schedule() {
        begin_at_zero(x, sums);
        x.dim(0).set_extent(square_sum_lanes);
        x.dim(1).set_stride(square_sum_lanes);
        sums.dim(0).set_extent(square_sum_lanes);
        tensors.begin_schedule(*this);
        schedules::pack_sums({element, sum, sums, k, lane}, get_target());
    }

private:
    Var lane{"lane"}, i{"i"};
    RVar k;
    Func element{"element"}, sum{"sum"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::SquareSum, square_sum)
