// Calls of elementwise operations, norms and softmax, their arguments checked. They refer to views of their caller: copies
// would be a fifth of the time of a call on one short row.
#ifndef HALYARD_RUNTIME_CORE_CALLS_OPS_H
#define HALYARD_RUNTIME_CORE_CALLS_OPS_H

#include <algorithm>
#include <iterator>

#include "core/calls/norm.h"
#include "core/kernel_call.h"

namespace halyard {

/** One or two outputs = kernel(one to three inputs), all of one shape but for pairs. */
struct ElementwiseCall {
    /** A tensor of which so many elements belong to a column: 2 of interleaved pairs. */
    struct Operand {
        const View *view = nullptr;
        int per_column = 1;
    };
    static constexpr int max_operands = 5, max_outputs = 2;

    /** By its arguments, for launches on devices. `interleaved`: an element of y takes two of x, of gate and of up. */
    enum class Form { activation, gated_unit, interleaved_unit, add, cast, on_processors_alone };

    ElementwiseCall(KernelOf<arguments::Activation> kernel, const View &x, float beta, const View &y)
        : ElementwiseCall(Form::activation, kernel, beta, y, 1, {{&x}, {&y}}) {}
    ElementwiseCall(KernelOf<arguments::Glu> kernel, const View &gate, const View &up, float beta, const View &y)
        : ElementwiseCall(Form::gated_unit, kernel, beta, y, 2, {{&gate}, {&up}, {&y}}) {}
    ElementwiseCall(KernelOf<arguments::GluInterleaved> kernel, const View &x, float beta, const View &y)
        : ElementwiseCall(Form::interleaved_unit, kernel, beta, y, 1, {{&x, 2}, {&y}}) {}
    ElementwiseCall(KernelOf<arguments::Add> kernel, const View &a, const View &b, const View &y)
        : ElementwiseCall(Form::add, kernel, 0.0f, y, 2, {{&a}, {&b}, {&y}}) {}
    /** A cast to the dtype of y. */
    ElementwiseCall(const View &x, const View &y)
        : ElementwiseCall(Form::cast,
                          KernelOf<arguments::CastToF16>{y.dtype == DType::f32   ? Kernel::cast_to_f32
                                                         : y.dtype == DType::f16 ? Kernel::cast_to_f16
                                                                                 : Kernel::cast_to_bf16},
                          0.0f, y, 1, {{&x}, {&y}}) {}
    ElementwiseCall(KernelOf<arguments::GluBackward> kernel, const View &gate, const View &up, const View &dy,
                    float beta, const View &dgate, const View &dup)
        : ElementwiseCall(Form::on_processors_alone, kernel, beta, dgate, 3,
                          {{&gate}, {&up}, {&dy}, {&dgate}, {&dup}}) {}
    ElementwiseCall(KernelOf<arguments::GluInterleavedBackward> kernel, const View &x, const View &dy, float beta,
                    const View &dx)
        : ElementwiseCall(Form::on_processors_alone, kernel, beta, dx, 2, {{&x, 2}, {&dy}, {&dx, 2}}) {}

    int count() const { return input_count + output_count; }
    const View &input(int i) const { return *operands[i].view; }
    const View &output(int i) const { return *operands[input_count + i].view; }

    Form form;
    Kernel kernel;
    const Parameter *parameters;  // of the kernel: buffers in the order of the operands, and at most one scalar
    int parameter_count;
    float beta;
    const View &y;  // the first output
    int input_count, output_count;
    Operand operands[max_operands];  // the inputs, then the outputs

private:
    template<typename Arguments, int operand_count>
    ElementwiseCall(Form form, KernelOf<Arguments> kernel, float beta, const View &y, int input_count,
                    const Operand (&given)[operand_count])
        : form(form), kernel(kernel.kernel), parameters(Arguments::parameters()),
          parameter_count(static_cast<int>(std::size(Arguments::parameters()))), beta(beta), y(y),
          input_count(input_count), output_count(operand_count - input_count) {
        std::copy(std::begin(given), std::end(given), operands);
    }
};

/** y = norm(x), or residual_out = x + residual and y = norm(residual_out) where there is a residual. Weight and bias are
 *  empty where there is none. */
struct NormCall {
    halyard_norm norm;
    const View &x, &weight, &bias, &y;
    const RmsNormScalars &scalars;  // a LayerNorm has only the eps
    const View &residual = no_view, &residual_out = no_view;

    /** Whether rows of 16 bits have a weight or bias in f32: such calls compute in f32 and round once. */
    bool is_mixed() const { return (weight.data && weight.dtype != x.dtype) || (bias.data && bias.dtype != x.dtype); }
};

/** dx, to which residual_out's gradient is added if there is one, and what is summed over rows: f32, [d], added to what is there if
 *  they accumulate. Tensors that are not there are empty. */
struct NormBackwardCall {
    halyard_norm norm;
    const View &x, &weight, &dy, &dresidual_out;
    const RmsNormScalars &scalars;  // a LayerNorm has only the eps
    bool accumulate;
    const View &dx, &dweight, &dbias;
    const View &y = dweight.data ? dweight : dbias.data ? dbias : dx;  // an output: of no rows the sums are zeros

    /** Whether rows of 16 bits have a weight in f32: such calls compute in f32 and round dx once. */
    bool is_mixed() const { return weight.data && weight.dtype != x.dtype; }
};

/** y = softmax(scale x). */
struct SoftmaxCall {
    const View &x, &y;
    float scale;
};

/** y, which is dx, = scale softmax (dy - sum(softmax dy)). */
struct SoftmaxBackwardCall {
    const View &softmax, &dy;
    float scale;
    const View &y;
};

/** 1/sqrt(...) and, for a LayerNorm, the mean of every row: f32, [leading axes of x]. */
struct NormStatisticsCall {
    halyard_norm norm;
    const View &x, &mean, &y;  // y: the scale
    const RmsNormScalars &scalars;
};

}  // namespace halyard

#endif
