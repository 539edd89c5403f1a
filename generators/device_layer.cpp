// What surrounds the matrix products of linear layers on a GPU: the epilogue of their sums, and the folding of a norm's
// weight into a matrix.
#include "Halide.h"

#include "activations.h"
#include "folding.h"
#include "schedules/elementwise_kernel.h"

namespace halyard {
namespace {

using namespace Halide;

// y = f(gate) or f(gate) * up of sums that are centred and scaled row by row and have a bias added:
// (sum - row_mean * column_sum) * row_scale + bias.
class DeviceEpilogue : public Generator<DeviceEpilogue> {
public:
    ElementwiseKernel kernel;
    GeneratorParam<std::string> function{"function", "identity"};
    GeneratorParam<bool> gated{"gated", false};
    Input<Buffer<void, 2>> sums{"sums"};  // of the gate, where there are two
    Input<Buffer<float, 1>> column_sums{"column_sums"}, bias{"bias"};
    Input<Buffer<float, 1>> row_scale{"row_scale"}, row_mean{"row_mean"};  // of any stride: one entry may do for all
    Input<float> beta{"beta"};
    Input<Buffer<>> *sums_up = nullptr, *column_sums_up = nullptr, *bias_up = nullptr;
    Output<Buffer<void, 2>> y{"y"};  // may be sums

    void configure() {
        kernel.configure(*this, sums, y);
        if (gated) {
            sums_up = kernel.tensors.add_input(*this, "sums_up", 2);
            column_sums_up = add_input<Buffer<>>("column_sums_up", Float(32), 1);
            bias_up = add_input<Buffer<>>("bias_up", Float(32), 1);
        }
    }

    void generate() {
        row_scale.dim(0).set_min(0).set_stride(Expr());
        row_mean.dim(0).set_min(0).set_stride(Expr());
        const Var t = kernel.t;
        kernel.write(y, [&](const ElementAccess &at, const Expr &i) {
            const auto linear = [&](const Func &sum, const Func &column_sum, const Func &column_bias) {
                return (at(sum, i) - row_mean(t) * column_sum(i)) * row_scale(t) + column_bias(i);
            };
            const Expr gate = linear(sums, column_sums, bias);
            const Expr activated = activation(function, get_target(), kernel.tensors.dtype, gate, beta);
            if (gated) {
                return activated * linear(*sums_up, *column_sums_up, *bias_up);
            }
            // Swish takes the sign of beta out of its bits.
            return function.value() == "swish" ? at.with_sign_set(activated) : activated;
        });
    }

    void schedule() { kernel.schedule(*this); }
};

// y = w * (factor + offset), factor by column or by row.
class DeviceFold : public Generator<DeviceFold> {
public:
    ElementwiseKernel kernel;
    GeneratorParam<bool> by_row{"by_row", false};
    Input<Buffer<void, 2>> w{"w"};
    Input<Buffer<float, 1>> factor{"factor"};
    Input<float> offset{"offset"};
    Output<Buffer<void, 2>> y{"y"};  // may be w

    void configure() { kernel.configure(*this, w, y); }

    void generate() {
        const Var d = kernel.d, t = kernel.t;
        kernel.write_stored(y, folded(kernel.tensors.storage(), w(d, t), factor(by_row ? t : d), offset));
    }

    void schedule() { kernel.schedule(*this); }
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::DeviceEpilogue, device_epilogue)
HALIDE_REGISTER_GENERATOR(halyard::DeviceFold, device_fold)
