// sums(column, block) = so_far(column, block) + x(column, row) over the rows of the block, in f32 and in their order; without
// so_far from +0, so that no sum is -0. There are at most column_sum_columns columns.
#include "Halide.h"

#include "schedules/column_reduction.h"
#include "schedules/kernel_tensors.h"

namespace halyard {
namespace {

using namespace Halide;

class ColumnSum : public Generator<ColumnSum> {
public:
    KernelTensors tensors;
    schedules::ColumnReductionParams params;

    Input<Buffer<void, 2>> x{"x"};             // x(column, row)
    Input<Buffer<float, 2>> so_far{"so_far"};  // may be sums
    Input<bool> continues{"continues"};        // false: so_far is not read
    Output<Buffer<float, 2>> sums{"sums"};     // of column_sum_rows rows each, the last block of what is left

    void configure() { tensors.configure(*this, x); }

    void generate() {
        stages = schedules::reduce_columns(
            sums, sums.dim(0).extent(), x.dim(1).extent(), so_far, continues,
            [&](const Expr &column, const Expr &row) { return tensors.storage().widen(x(column, row)); });
    }

    void schedule() {
        begin_at_zero(x, so_far, sums);
        tensors.begin_schedule(*this);
        schedules::column_reduction(stages, params, get_target());
    }

private:
    schedules::ColumnReduction stages;
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::ColumnSum, column_sum)
