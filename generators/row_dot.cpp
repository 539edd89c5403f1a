// The dot product of two rows: y(0, row) = sum of a b over the row.
#include "Halide.h"

#include "schedules/row_kernel.h"

namespace halyard {
namespace {

using namespace Halide;

class RowDot : public Generator<RowDot> {
public:
    RowKernel row{RowWork::statistics};
    Input<Buffer<void, 2>> a{"a"}, b{"b"};

    void configure() {
        row.configure(*this, a, b);
        row.add_statistics(*this, 1);
    }

    void generate() {
        b.dim(0).set_extent(a.dim(0).extent());
        const Element product = [&](const ElementAccess &at, const Expr &i) { return at(a, i) * at(b, i); };
        row.write_statistics({row.reduce("products", row.width_of(a), 64, sum_of_elements(), product)});
    }

    void schedule() { row.schedule(*this); }
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::RowDot, row_dot)
