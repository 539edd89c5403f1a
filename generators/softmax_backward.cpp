// The backward pass of softmax over a row, from its result: dx = scale y (dy - sum(y dy)).
#include "Halide.h"

#include "schedules/row_kernel.h"

namespace halyard {
namespace {

using namespace Halide;

class SoftmaxBackward : public Generator<SoftmaxBackward> {
public:
    RowKernel row{RowWork::gradient};
    Input<Buffer<void, 2>> y{"y"}, dy{"dy"};
    Input<float> score_scale{"score_scale"};
    Output<Buffer<void, 2>> dx{"dx"};

    void configure() { row.configure(*this, y, dy, dx); }

    void generate() {
        y.dim(0).set_extent(dx.dim(0).extent());
        dy.dim(0).set_extent(dx.dim(0).extent());
        const Element product = [&](const ElementAccess &at, const Expr &i) { return at(y, i) * at(dy, i); };
        const Expr sum = row.reduce("products", row.width_of(dx), 64, sum_of_elements(), product);
        row.write(dx,
                  [&](const ElementAccess &at, const Expr &i) { return at(y, i) * (at(dy, i) - sum) * score_scale; });
    }

    void schedule() { row.schedule(*this); }
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::SoftmaxBackward, softmax_backward)
