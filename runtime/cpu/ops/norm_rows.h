// Rows of norms on the processor: a norm's kernel with all but x and y, and rows that are normalized in f32 whatever their dtype.
#ifndef HALYARD_RUNTIME_CPU_OPS_NORM_ROWS_H
#define HALYARD_RUNTIME_CPU_OPS_NORM_ROWS_H

#include "core/calls/norm.h"
#include "core/cast.h"
#include "core/kernel_call.h"
#include "core/row_iterator.h"
#include "core/system/caches.h"

namespace halyard {

/** Row kernels may compute several rows side by side (2 or 4, see schedules/row.h), but only if the number of rows is a multiple. */
enum class RowOrder { side_by_side, one_by_one };

/** The faster order for a call that does not stream. Side by side, rows wait for each other's sums less long. But the processor reads and
 *  writes rows ahead of the kernel only if they are long, or one after the other: beyond the second-level cache, short ones take half to
 *  four fifths of the time one by one: those of up to `longest` features. */
inline RowOrder row_order(int64_t threads, const Rows &rows, int64_t longest = 2048) {
    const bool in_cache = rows.count() * rows.bytes_per_row() <= threads * second_level_cache();
    return in_cache || rows.width() > longest ? RowOrder::side_by_side : RowOrder::one_by_one;
}

/** Calls visit(first, count) so that they cover the rows in this order. */
template<typename Visit>
[[gnu::always_inline]] inline void in_row_order(RowOrder order, int64_t rows, const Visit &visit) {
    constexpr int64_t multiple = 4;
    const int64_t together = order == RowOrder::one_by_one ? (rows - 1) / 2 * 2 + 1
                             : rows > multiple             ? rows / multiple * multiple
                                                           : rows;
    visit(0, together);
    if (rows > together) {
        visit(together, rows - together);
    }
}

/** One per task, as it holds the buffers. */
class NormRows {
public:
    /** Weight and bias are of `dtype`, and empty where there is none. */
    NormRows(halyard_isa isa, DType dtype, halyard_norm norm, const RmsNormScalars &scalars, const View &weight,
             const View &bias, RowOrder order = RowOrder::side_by_side)
        : order_(order), kernel_(kernel_of(norm, weight.data, bias.data)),
          function_(kernel_function(kernel_, dtype, isa)), size_(size_of(dtype)), scalars_(scalars) {
        weight_.set(weight.data, weight.width());
        bias_.set(bias.data, bias.width());
    }

    /** From now on writes around the caches, to rows of y that begin at lines; false, and nothing changes, if no kernel does. */
    bool stream() {
        const KernelFunction streamed = streamed_form(function_);
        function_ = streamed ? streamed : function_;
        return streamed;
    }

    /** Pitches count elements. */
    void operator()(char *x, int64_t x_pitch, char *y, int64_t y_pitch, int64_t columns, int64_t rows) {
        in_row_order(order_, rows, [&](int64_t first, int64_t count) {
            x_.set(x + first * x_pitch * size_, columns, count, x_pitch);
            y_.set(y + first * y_pitch * size_, columns, count, y_pitch);
            call();
        });
    }

private:
    static Kernel kernel_of(halyard_norm norm, bool has_weight, bool has_bias) {
        if (norm == HALYARD_NORM_RMS) {
            return has_weight ? Kernel::rms_norm_weight : Kernel::rms_norm;
        }
        if (has_weight) {
            return has_bias ? Kernel::layer_norm_weight_bias : Kernel::layer_norm_weight;
        }
        return has_bias ? Kernel::layer_norm_bias : Kernel::layer_norm;
    }

    // Inlined into a loop, it would have GCC prepare the arguments of all kernels in front of that.
    [[gnu::noinline]] void call() const {
        const auto &[eps, eps_outside_root, weight_offset, moment_width] = scalars_;
        switch (kernel_) {
        case Kernel::rms_norm:
            return as(kernels::rms_norm)({x_, eps, eps_outside_root, weight_offset, moment_width, y_});
        case Kernel::rms_norm_weight:
            return as(kernels::rms_norm_weight)({x_, eps, eps_outside_root, weight_offset, moment_width, weight_, y_});
        case Kernel::layer_norm:
            return as(kernels::layer_norm)({x_, eps, y_});
        case Kernel::layer_norm_weight:
            return as(kernels::layer_norm_weight)({x_, eps, weight_, y_});
        case Kernel::layer_norm_bias:
            return as(kernels::layer_norm_bias)({x_, eps, bias_, y_});
        default:
            return as(kernels::layer_norm_weight_bias)(
                {.x = x_, .eps = eps, .weight = weight_, .bias = bias_, .y = y_});
        }
    }

    template<typename Arguments>
    KernelCall<Arguments> as(KernelOf<Arguments>) const {
        return KernelCall<Arguments>(function_);
    }

    const RowOrder order_;
    const Kernel kernel_;
    KernelFunction function_;
    const int64_t size_;
    const RmsNormScalars &scalars_;
    Buffer<2> x_, y_;
    Buffer<1> weight_, bias_;
};

/** Normalizes one row after another in f32, into memory of its own. One per task. */
class NormInF32 {
public:
    /** What a task needs for rows of so many features. */
    static constexpr int64_t scratch_floats(int64_t width) { return 2 * width; }

    /** `dtype` is that of the rows. Weight and bias are f32, and empty where there is none. */
    NormInF32(halyard_isa isa, DType dtype, halyard_norm norm, const RmsNormScalars &scalars, const View &weight,
              const View &bias, int64_t width, float *scratch)
        : isa_(isa), dtype_(dtype), width_(width), norm_(isa, DType::f32, norm, scalars, weight, bias), row_(scratch),
          normalized_(scratch + width) {}

    /** The result of a row of x, which stays until the next call. */
    TypedRows operator()(char *x) {
        if (dtype_ != DType::f32) {
            widen(isa_, {x, dtype_}, row_, 0, width_, 1);
            x = reinterpret_cast<char *>(row_);
        }
        const TypedRows result = {reinterpret_cast<char *>(normalized_), DType::f32};
        norm_(x, 0, result.data, 0, width_, 1);
        return result;
    }

private:
    const halyard_isa isa_;
    const DType dtype_;
    const int64_t width_;
    NormRows norm_;
    float *const row_, *const normalized_;
};

}  // namespace halyard

#endif
