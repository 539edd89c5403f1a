// The product of matrices on a GPU, where cuBLASLt does not compute it: y = alpha x w + beta c + bias.
//
// Each element is the sum, in f32, of the sums of blocks of inputs, in an order that does not depend on the shape of
// the call.
#include "Halide.h"

#include "schedules/gpu_matmul.h"
#include "schedules/kernel_tensors.h"

namespace halyard {
namespace {

using namespace Halide;

class DeviceProduct : public Generator<DeviceProduct> {
public:
    KernelTensors tensors;                                // dtype: of x and w
    GeneratorParam<bool> to_f32{"to_f32", false};         // the dtype of y, c and bias, if not that of x
    GeneratorParam<bool> transposed{"transposed", true};  // w(input, column), not w(column, input)

    Input<Buffer<void, 3>> x{"x"};        // x(input, row, batch)
    Input<Buffer<void, 3>> w{"w"};        // (input, column, batch) or (column, input, batch)
    Input<Buffer<void, 3>> c{"c"};        // as y, and not read where beta is 0
    Input<Buffer<void, 1>> bias{"bias"};  // bias(column); any column of y where there is none
    Input<float> alpha{"alpha"}, beta{"beta"};
    Input<bool> has_bias{"has_bias"};
    Output<Buffer<void, 3>> y{"y"};  // y(column, row, batch); may be c

    void configure() {
        tensors.configure(*this, x, w);
        c.set_type(result().type());
        bias.set_type(result().type());
        y.set_type(result().type());
    }

    void generate() {
        const Storage storage = tensors.storage();
        const Expr depth = x.dim(0).extent(), rows = y.dim(1).extent(), columns = y.dim(0).extent();
        const int block = schedules::gpu::product_block;
        // Beyond the ends there are zeros.
        const Expr i = min(input, depth - 1), j = min(row, rows - 1), k = min(column, columns - 1);
        x_block(input, row, batch) = select(input < depth, storage.widen(x(i, j, batch)), 0.0f);
        w_block(input, column, batch) =
            select(input < depth, storage.widen(transposed ? w(i, k, batch) : w(k, i, batch)), 0.0f);

        const RDom in_block(0, block, "input"), blocks(0, (depth + block - 1) / block, "block");
        partial(column, row, batch, part) = 0.0f;
        // `sum + a * b` becomes a fused multiply-add.
        partial(column, row, batch, part) +=
            x_block(part * block + in_block, row, batch) * w_block(part * block + in_block, column, batch);
        sum(column, row, batch) = 0.0f;
        sum(column, row, batch) += partial(column, row, batch, blocks);

        const Expr scaled = strict_float(alpha * sum(column, row, batch));
        const Expr with_c = select(beta == 0.0f, scaled,
                                   strict_float(scaled + strict_float(beta * result().widen(c(column, row, batch)))));
        y(column, row, batch) =
            result().narrow(select(has_bias, strict_float(with_c + result().widen(bias(column))), with_c));
    }

    void schedule() {
        begin_at_zero(x, w, c, y, bias);
        tensors.begin_schedule(*this);
        schedules::gpu::product({x_block, w_block, partial, sum, y, input, column, row, batch, transposed});
    }

private:
    Storage result() const { return Storage(to_f32 ? DType::f32 : tensors.dtype.value(), get_target()); }

    Var input{"input"}, column{"column"}, row{"row"}, batch{"batch"}, part{"part"};
    Func x_block{"x_block"}, w_block{"w_block"}, partial{"partial"}, sum{"sum"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::DeviceProduct, device_product)
