// The second half of softmax over a row, of what softmax.cpp leaves: y = exponential / sum(exponential).
#include "Halide.h"

#include "schedules/row_kernel.h"

namespace halyard {
namespace {

using namespace Halide;

class SoftmaxNormalize : public Generator<SoftmaxNormalize> {
public:
    RowKernel row{RowWork::heavy, DType::f32};
    Input<Buffer<float, 2>> exponentials{"exponentials"};
    Output<Buffer<void, 2>> y{"y"};

    void configure() { row.configure(*this, y); }

    void generate() {
        exponentials.dim(0).set_extent(y.dim(0).extent());
        constexpr int lanes = 64;
        const Expr sum = row.reduce("sum", row.width_of(y), lanes, sum_of_elements(), elements_of(exponentials));
        const Expr inverse = row.scalar("inverse", 1.0f / sum);
        row.write(y, [&](const ElementAccess &at, const Expr &i) { return at(exponentials, i) * inverse; });
    }

    void schedule() { row.schedule(*this); }
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::SoftmaxNormalize, softmax_normalize)
