// Norms as calls of a row kernel: what the norm functions and the feed-forward network share.
#ifndef HALYARD_RUNTIME_CORE_CALLS_NORM_H
#define HALYARD_RUNTIME_CORE_CALLS_NORM_H

#include "core/row_iterator.h"

namespace halyard {

constexpr int max_scalars = 4;

/** A norm or softmax with all but its tensors x and y: the kernel, and the arguments between the two. */
struct RowOperation {
    Kernel kernel;
    void *scalars[max_scalars];
    int scalar_count = 0;
    const View *parameters[2];  // weight, bias, those that there are
    int parameter_count = 0;

    void scalar(void *value) { scalars[scalar_count++] = value; }
    void parameter(const View &view) {
        if (view.data) {
            parameters[parameter_count++] = &view;
        }
    }
};

// Kernels may take several rows side by side (2 or 4, see schedules/row.h), but only if the number of rows is a
// multiple.
constexpr int64_t row_multiple = 4;

/** A row kernel bound to its arguments, called once per piece. One per task, as it holds the buffers. */
class BoundRowKernel {
public:
    BoundRowKernel(const RowOperation &operation, DType dtype, halyard_isa isa)
        : BoundRowKernel(operation, dtype, isa, dtype, dtype) {}
    BoundRowKernel(const RowOperation &operation, DType dtype, halyard_isa isa, DType x_dtype, DType y_dtype)
        : function_(kernel_function(operation.kernel, dtype, isa)), x_size_(size_of(x_dtype)),
          y_size_(size_of(y_dtype)) {
        int n = 0;
        arguments_[n++] = x_.argument();
        for (int i = 0; i < operation.scalar_count; i++) {
            arguments_[n++] = operation.scalars[i];
        }
        for (int i = 0; i < operation.parameter_count; i++) {
            parameters_[i].set(operation.parameters[i]->data, operation.parameters[i]->width(), 1, 0);
            arguments_[n++] = parameters_[i].argument();
        }
        arguments_[n] = y_.argument();
    }

    /** Pitches count elements. */
    void operator()(char *x, int64_t x_pitch, char *y, int64_t y_pitch, int64_t columns, int64_t rows) {
        const int64_t even = rows > row_multiple ? rows / row_multiple * row_multiple : rows;
        call(x, x_pitch, y, y_pitch, columns, even);
        if (rows > even) {
            call(x + even * x_pitch * x_size_, x_pitch, y + even * y_pitch * y_size_, y_pitch, columns, rows - even);
        }
    }

private:
    void call(char *x, int64_t x_pitch, char *y, int64_t y_pitch, int64_t columns, int64_t rows) {
        x_.set(x, columns, rows, x_pitch);
        y_.set(y, columns, rows, y_pitch);
        function_(arguments_);
    }

    KernelFunction function_;
    int64_t x_size_, y_size_;
    Buffer x_, y_, parameters_[2];
    void *arguments_[2 + max_scalars + 2];
};

inline RowOperation layer_norm(const View &weight, const View &bias, float *eps) {
    constexpr Kernel kernels[2][2] = {{Kernel::layer_norm, Kernel::layer_norm_bias},
                                      {Kernel::layer_norm_weight, Kernel::layer_norm_weight_bias}};
    RowOperation operation;
    operation.kernel = kernels[weight.data != nullptr][bias.data != nullptr];
    operation.scalar(eps);
    operation.parameter(weight);
    operation.parameter(bias);
    return operation;
}

/** The scalars of an RMSNorm kernel. */
struct RmsNormScalars {
    float eps;
    bool eps_outside_root;
    float weight_offset;
    int32_t moment_width;
};

/** `flags_name`: what the caller knows the flags by. */
inline RmsNormScalars rms_norm_scalars(Checker &check, const char *flags_name, const View &x, float eps, unsigned flags,
                                       float p) {
    constexpr unsigned known = HALYARD_RMS_EPS_OUTSIDE_ROOT | HALYARD_RMS_UNIT_OFFSET;
    check.finite_not_negative("eps", eps);
    if (!check.failed() && (flags & ~known)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is 0x%x, which holds unknown bits", flags_name, flags);
    }
    if (!check.failed() && !(p > 0.0f && p <= 1.0f)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "p is %g, but must be in (0, 1]", static_cast<double>(p));
    }
    if (check.failed()) {
        return {};
    }
    // Rounded up without std::ceil, which clang takes from libm.
    const double product = static_cast<double>(p) * static_cast<double>(x.width());
    const auto whole = static_cast<int32_t>(product);
    return {eps, (flags & HALYARD_RMS_EPS_OUTSIDE_ROOT) != 0, flags & HALYARD_RMS_UNIT_OFFSET ? 1.0f : 0.0f,
            whole + (product > whole)};
}

/** Those of a LayerNorm: its eps, and that all features count. */
inline RmsNormScalars layer_norm_scalars(Checker &check, const View &x, float eps) {
    check.finite_not_negative("eps", eps);
    return {eps, false, 0.0f, static_cast<int32_t>(x.width())};
}

inline RowOperation rms_norm(const View &weight, RmsNormScalars *scalars) {
    RowOperation operation;
    operation.kernel = weight.data ? Kernel::rms_norm_weight : Kernel::rms_norm;
    operation.scalar(&scalars->eps);
    operation.scalar(&scalars->eps_outside_root);
    operation.scalar(&scalars->weight_offset);
    operation.scalar(&scalars->moment_width);
    operation.parameter(weight);
    return operation;
}

}  // namespace halyard

#endif
