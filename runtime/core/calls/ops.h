// Calls of elementwise operations, norms and softmax, their arguments checked. They refer to views of their caller: copies
// would be a fifth of the time of a call on one short row.
#ifndef HALYARD_RUNTIME_CORE_CALLS_OPS_H
#define HALYARD_RUNTIME_CORE_CALLS_OPS_H

#include "core/calls/norm.h"
#include "core/kernel_call.h"

namespace halyard {

/** y = kernel(inputs), all of one shape. */
struct ElementwiseCall {
    /** By its arguments. `interleaved`: an element of y takes two of x, of gate and of up. */
    enum class Form { activation, gated_unit, interleaved_unit, add, cast };

    ElementwiseCall(KernelOf<arguments::Activation> kernel, const View &x, float beta, const View &y)
        : form(Form::activation), kernel(kernel.kernel), inputs{&x}, beta(beta), y(y) {}
    ElementwiseCall(KernelOf<arguments::Glu> kernel, const View &gate, const View &up, float beta, const View &y)
        : form(Form::gated_unit), kernel(kernel.kernel), inputs{&gate, &up}, beta(beta), y(y) {}
    ElementwiseCall(KernelOf<arguments::GluInterleaved> kernel, const View &x, float beta, const View &y)
        : form(Form::interleaved_unit), kernel(kernel.kernel), inputs{&x}, beta(beta), y(y) {}
    ElementwiseCall(KernelOf<arguments::Add> kernel, const View &a, const View &b, const View &y)
        : form(Form::add), kernel(kernel.kernel), inputs{&a, &b}, y(y) {}
    /** A cast to the dtype of y. */
    ElementwiseCall(const View &x, const View &y)
        : form(Form::cast), kernel(y.dtype == DType::f32   ? Kernel::cast_to_f32
                                   : y.dtype == DType::f16 ? Kernel::cast_to_f16
                                                           : Kernel::cast_to_bf16),
          inputs{&x}, y(y) {}

    int input_count() const { return form == Form::gated_unit || form == Form::add ? 2 : 1; }
    /** Elements of the first input for each of y. */
    int pair() const { return form == Form::interleaved_unit ? 2 : 1; }

    Form form;
    Kernel kernel;
    const View *inputs[2];
    float beta = 0.0f;
    const View &y;
};

/** y = norm(x), or residual_out = x + residual and y = norm(residual_out) where there is a residual. Weight and bias are
 *  empty where there is none. */
struct NormCall {
    halyard_norm norm;
    const View &x, &weight, &bias, &y;
    const RmsNormScalars &scalars;  // a LayerNorm has only the eps
    const View &residual = no_view, &residual_out = no_view;
};

/** y = softmax(scale x). */
struct SoftmaxCall {
    const View &x, &y;
    float scale;
};

/** 1/sqrt(...) and, for a LayerNorm, the mean of every row: f32, [leading axes of x]. */
struct NormStatisticsCall {
    halyard_norm norm;
    const View &x, &mean, &y;  // y: the scale
    const RmsNormScalars &scalars;
};

}  // namespace halyard

#endif
