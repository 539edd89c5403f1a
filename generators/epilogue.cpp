// What happens to the sums of a matrix product before they are stored: the norm's scale and mean, bias, activation,
// gated unit, residual.
#include "Halide.h"

#include "activations.h"
#include "runtime/layout/matmul.h"
#include "schedules/kernel_tensors.h"
#include "schedules/matmul.h"

namespace halyard {
namespace {

using namespace Halide;

class Epilogue : public Generator<Epilogue> {
public:
    KernelTensors tensors;  // dtype: of residual and y
    GeneratorParam<std::string> function{"function", "identity"};
    GeneratorParam<bool> gated{"gated", false};  // panels of the gate and of up take turns
    schedules::EpilogueParams params;

    Input<Buffer<float, 2>> sum{"sum"};  // sum(packed column, row)
    Input<Buffer<float, 1>> row_scale{"row_scale"};
    Input<Buffer<float, 1>> row_mean{"row_mean"};
    Input<Buffer<float, 1>> column_sums{"column_sums"};  // of packed columns, as the next two
    Input<Buffer<float, 1>> column_bias{"column_bias"};
    Input<Buffer<float, 1>> bias{"bias"};
    Input<Buffer<void, 2>> residual{"residual"};  // residual(column, row)
    Input<float> beta{"beta"};
    Output<Buffer<void, 2>> y{"y"};  // y(column, row)

    void configure() { tensors.configure(*this, residual, y); }

    void generate() {
        const auto linear = [&](const Expr &packed) {
            const Expr centred = sum(packed, row) - row_mean(row) * column_sums(packed);
            return centred * row_scale(row) + column_bias(packed) + bias(packed);
        };
        const auto activated = [&](const Expr &value) {
            // In f32 for every type of y: next to the product a longer polynomial costs nothing.
            return activation(function, get_target(), DType::f32, value, beta);
        };
        Expr value;
        if (gated) {
            const Expr gate = (column / panel_width) * (2 * panel_width) + column % panel_width;
            value = activated(linear(gate)) * linear(gate + panel_width);
        } else {
            value = activated(linear(column));
        }
        // A NaN of x, of the weights or of a bias has any bits, whatever the type of y.
        y(column, row) = tensors.storage().narrow(value + tensors.storage().widen(residual(column, row)));
    }

    void schedule() {
        y.dim(0).set_min(0);
        tensors.begin_schedule(*this);
        schedules::epilogue({y, column, row}, params, get_target());
    }

private:
    Var column{"column"}, row{"row"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Epilogue, epilogue)
