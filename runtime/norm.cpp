// Row operations: the norms with and without residual, and softmax.
#include <climits>
#include <cmath>
#include <initializer_list>

#include "rows.h"
#include "streaming.h"

namespace halyard {
namespace {

// A fused add and norm works on blocks of rows of about this many bytes, so that the sum is still in the first-level
// cache when the norm reads it.
constexpr int64_t fused_block_bytes = 16 * 1024;

// A row operation can be streamed if a row fits a tile: 16384 f32 features.
constexpr int64_t row_tile_bytes = 64 * 1024;

// Kernels may take several rows side by side (2 or 4, see schedules/row.h), but only if the number of rows is a multiple.
constexpr int64_t row_multiple = 4;

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

/** A row kernel bound to its arguments, called once per piece. One per task, as it holds the buffers. */
class BoundRowKernel {
public:
    BoundRowKernel(const RowOperation &operation, DType dtype, halyard_isa isa)
        : BoundRowKernel(operation, dtype, isa, dtype, dtype) {}
    BoundRowKernel(const RowOperation &operation, DType dtype, halyard_isa isa, DType x_dtype, DType y_dtype)
        : function_(kernel_function(operation.kernel, dtype, isa)), x_size_(size_of(x_dtype)), y_size_(size_of(y_dtype)) {
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

Rows rows_of(std::initializer_list<const View *> views) {
    Rows rows(false);
    for (const View *view : views) {
        rows.add(*view);
    }
    rows.merge();
    return rows;
}

void run(const halyard_context *context, const RowOperation &operation, const View &x, const View &y) {
    if (y.empty()) {
        return;
    }
    const Rows rows = rows_of({&x, &y});
    const halyard_context &c = context_or_default(context);
    const halyard_isa isa = best_isa(c.max_isa);
    const int64_t size = size_of(y.dtype), row_bytes = rows.width() * size;
    const bool stream = should_stream(c, rows.count() * rows.bytes_per_row()) && row_bytes <= row_tile_bytes && x.data != y.data;

    Split(c, rows).run([&](const Part &part) {
        BoundRowKernel kernel(operation, x.dtype, isa);
        if (!stream) {
            rows.for_each_piece(part, INT_MAX, rows.width(), [&](const Rows::Piece &piece) {
                kernel(piece.data[0], piece.pitch[0], piece.data[1], piece.pitch[1], piece.columns, piece.rows);
            });
            return;
        }
        Tile<row_tile_bytes> tile(true, isa);
        const int64_t block = std::max<int64_t>(1, fused_block_bytes / row_bytes);
        rows.for_each_piece(part, block, rows.width(), [&](const Rows::Piece &piece) {
            kernel(piece.data[0], piece.pitch[0], tile.data(), piece.columns, piece.columns, piece.rows);
            const int64_t x_pitch = piece.pitch[0] * size;
            tile.store_and_fetch(piece.data[1], row_bytes, piece.rows, piece.pitch[1] * size,
                                 piece.data[0] + piece.rows * x_pitch, x_pitch);
        });
    });
}

void run_fused(const halyard_context *context, const RowOperation &operation, const View &x, const View &residual,
               const View &sum, const View &y) {
    if (y.empty()) {
        return;
    }
    const Rows rows = rows_of({&x, &residual, &sum, &y});
    const halyard_context &c = context_or_default(context);
    const halyard_isa isa = best_isa(c.max_isa);
    const KernelFunction add = kernel_function(Kernel::add, x.dtype, isa);
    const int64_t size = size_of(x.dtype), row_bytes = rows.width() * size;
    const bool may_stream = should_stream(c, rows.count() * rows.bytes_per_row()) && row_bytes <= row_tile_bytes;
    const auto in_place = [&](const View &output) { return output.data == x.data || output.data == residual.data; };
    const bool stream_sum = may_stream && !in_place(sum), stream_y = may_stream && !in_place(y);

    Split(c, rows).run([&](const Part &part) {
        BoundRowKernel kernel(operation, x.dtype, isa);
        Buffer a, b, r;
        void *add_arguments[] = {a.argument(), b.argument(), r.argument()};
        Tile<row_tile_bytes> sum_tile(stream_sum, isa), y_tile(stream_y, isa);
        const int64_t block = std::max<int64_t>(1, fused_block_bytes / row_bytes);
        rows.for_each_piece(part, block, rows.width(), [&](const Rows::Piece &piece) {
            char *const sum_data = stream_sum ? sum_tile.data() : piece.data[2];
            char *const y_data = stream_y ? y_tile.data() : piece.data[3];
            const int64_t sum_pitch = stream_sum ? piece.columns : piece.pitch[2];
            const int64_t y_pitch = stream_y ? piece.columns : piece.pitch[3];
            a.set(piece.data[0], piece.columns, piece.rows, piece.pitch[0]);
            b.set(piece.data[1], piece.columns, piece.rows, piece.pitch[1]);
            r.set(sum_data, piece.columns, piece.rows, sum_pitch);
            add(add_arguments);
            kernel(sum_data, sum_pitch, y_data, y_pitch, piece.columns, piece.rows);
            if (stream_sum) {
                const int64_t next = piece.pitch[0] * size;
                sum_tile.store_and_fetch(piece.data[2], row_bytes, piece.rows, piece.pitch[2] * size,
                                         piece.data[0] + piece.rows * next, next);
            }
            if (stream_y) {
                const int64_t next = piece.pitch[1] * size;
                y_tile.store_and_fetch(piece.data[3], row_bytes, piece.rows, piece.pitch[3] * size,
                                       piece.data[1] + piece.rows * next, next);
            }
        });
    });
}

void run_softmax(const halyard_context *context, const View &x, float scale, const View &y) {
    RowOperation whole, normalize;
    whole.kernel = Kernel::softmax;
    whole.scalar(&scale);
    normalize.kernel = Kernel::softmax_normalize;
    if (y.empty()) {
        return;
    }
    const Rows rows = rows_of({&x, &y});
    const int64_t exponentials_bytes = rows.width() * size_of(DType::f32);
    if (exponentials_bytes > row_tile_bytes) {
        run(context, whole, x, y);
        return;
    }

    const halyard_context &c = context_or_default(context);
    const halyard_isa isa = best_isa(c.max_isa);
    const int64_t size = size_of(y.dtype), row_bytes = rows.width() * size;
    const bool stream = should_stream(c, rows.count() * rows.bytes_per_row()) && x.data != y.data;
    Split(c, rows).run([&](const Part &part) {
        RowOperation exponentials = whole;
        exponentials.kernel = Kernel::softmax_exponentials;
        BoundRowKernel first(exponentials, x.dtype, isa, x.dtype, DType::f32);
        BoundRowKernel second(normalize, y.dtype, isa, DType::f32, y.dtype);
        // f32 rows are their own place for the exponentials.
        alignas(64) char exponentials_tile[row_tile_bytes];
        Tile<row_tile_bytes> tile(stream, isa);
        const int64_t block = std::max<int64_t>(1, fused_block_bytes / exponentials_bytes);
        rows.for_each_piece(part, block, rows.width(), [&](const Rows::Piece &piece) {
            char *const result = stream ? tile.data() : piece.data[1];
            const int64_t result_pitch = stream ? piece.columns : piece.pitch[1];
            const bool in_result = y.dtype == DType::f32;
            char *const scratch = in_result ? result : exponentials_tile;
            const int64_t scratch_pitch = in_result ? result_pitch : piece.columns;
            first(piece.data[0], piece.pitch[0], scratch, scratch_pitch, piece.columns, piece.rows);
            second(scratch, scratch_pitch, result, result_pitch, piece.columns, piece.rows);
            if (stream) {
                const int64_t x_pitch = piece.pitch[0] * size;
                tile.store_and_fetch(piece.data[1], row_bytes, piece.rows, piece.pitch[1] * size,
                                     piece.data[0] + piece.rows * x_pitch, x_pitch);
            }
        });
    });
}

void check_rows(Checker &check, const View &x, std::initializer_list<const View *> others) {
    for (const View *other : others) {
        check.same_shape(x, *other);
        check.same_dtype(x, *other);
    }
    check.rows_not_empty(x);
    if (!check.failed() && x.width() > max_columns) {
        check.fail(HALYARD_UNSUPPORTED, "%s has rows of %lld features, but at most %lld are supported", x.name,
                   static_cast<long long>(x.width()), static_cast<long long>(max_columns));
    }
}

/** The tensors of a fused add and norm. */
struct FusedRows {
    View x, residual, residual_out, y;
};

FusedRows check_fused_rows(Checker &check, const DLTensor *x, const DLTensor *residual, const DLTensor *residual_out,
                           const DLTensor *y) {
    const FusedRows t = {check.tensor("x", x), check.tensor("residual", residual),
                         check.output("residual_out", residual_out), check.output("y", y)};
    check_rows(check, t.x, {&t.residual, &t.residual_out, &t.y});
    for (const View *output : {&t.residual_out, &t.y}) {
        check.no_overlap(*output, t.x, true);
        check.no_overlap(*output, t.residual, true);
    }
    check.no_overlap(t.y, t.residual_out, false);
    return t;
}

RowOperation layer_norm(const View &weight, const View &bias, float *eps) {
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

RmsNormScalars rms_norm_scalars(Checker &check, const View &x, float eps, unsigned flags, float p) {
    constexpr unsigned known = HALYARD_RMS_EPS_OUTSIDE_ROOT | HALYARD_RMS_UNIT_OFFSET;
    check.finite_not_negative("eps", eps);
    if (!check.failed() && (flags & ~known)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "flags is 0x%x, which holds unknown bits", flags);
    }
    if (!check.failed() && !(p > 0.0f && p <= 1.0f)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "p is %g, but must be in (0, 1]", static_cast<double>(p));
    }
    if (check.failed()) {
        return {};
    }
    const int32_t width = static_cast<int32_t>(x.width());
    return {eps, (flags & HALYARD_RMS_EPS_OUTSIDE_ROOT) != 0, flags & HALYARD_RMS_UNIT_OFFSET ? 1.0f : 0.0f,
            p == 1.0f ? width : static_cast<int32_t>(std::ceil(static_cast<double>(p) * width))};
}

RowOperation rms_norm(const View &weight, RmsNormScalars *scalars) {
    RowOperation operation;
    operation.kernel = weight.data ? Kernel::rms_norm_weight : Kernel::rms_norm;
    operation.scalar(&scalars->eps);
    operation.scalar(&scalars->eps_outside_root);
    operation.scalar(&scalars->weight_offset);
    operation.scalar(&scalars->moment_width);
    operation.parameter(weight);
    return operation;
}

halyard_status partial_rms_norm(const char *name, const halyard_context *context, const DLTensor *x,
                                const DLTensor *weight, float eps, unsigned flags, float p, DLTensor *y) {
    Checker check(name);
    const View xs = check.tensor("x", x), ys = check.output("y", y);
    check_rows(check, xs, {&ys});
    const View w = check.row_parameter("weight", weight, xs);
    check.no_overlap(ys, xs, true);
    check.no_overlap(ys, w, false);
    RmsNormScalars scalars = rms_norm_scalars(check, xs, eps, flags, p);
    if (!check.failed()) {
        run(context, rms_norm(w, &scalars), xs, ys);
    }
    return check.status();
}

}  // namespace
}  // namespace halyard

using namespace halyard;

halyard_status halyard_layer_norm(const halyard_context *context, const DLTensor *x, const DLTensor *weight,
                                  const DLTensor *bias, float eps, DLTensor *y) {
    Checker check("halyard_layer_norm");
    const View xs = check.tensor("x", x), ys = check.output("y", y);
    check_rows(check, xs, {&ys});
    const View w = check.row_parameter("weight", weight, xs), b = check.row_parameter("bias", bias, xs);
    check.no_overlap(ys, xs, true);
    check.no_overlap(ys, w, false);
    check.no_overlap(ys, b, false);
    check.finite_not_negative("eps", eps);
    if (!check.failed()) {
        run(context, layer_norm(w, b, &eps), xs, ys);
    }
    return check.status();
}

halyard_status halyard_rms_norm(const halyard_context *context, const DLTensor *x, const DLTensor *weight, float eps,
                                unsigned flags, DLTensor *y) {
    return partial_rms_norm("halyard_rms_norm", context, x, weight, eps, flags, 1.0f, y);
}

halyard_status halyard_partial_rms_norm(const halyard_context *context, const DLTensor *x, const DLTensor *weight,
                                        float eps, unsigned flags, float p, DLTensor *y) {
    return partial_rms_norm("halyard_partial_rms_norm", context, x, weight, eps, flags, p, y);
}

halyard_status halyard_add_layer_norm(const halyard_context *context, const DLTensor *x, const DLTensor *residual,
                                      const DLTensor *weight, const DLTensor *bias, float eps, DLTensor *residual_out,
                                      DLTensor *y) {
    Checker check("halyard_add_layer_norm");
    const FusedRows t = check_fused_rows(check, x, residual, residual_out, y);
    const View w = check.row_parameter("weight", weight, t.x), b = check.row_parameter("bias", bias, t.x);
    for (const View *output : {&t.residual_out, &t.y}) {
        check.no_overlap(*output, w, false);
        check.no_overlap(*output, b, false);
    }
    check.finite_not_negative("eps", eps);
    if (!check.failed()) {
        run_fused(context, layer_norm(w, b, &eps), t.x, t.residual, t.residual_out, t.y);
    }
    return check.status();
}

halyard_status halyard_add_rms_norm(const halyard_context *context, const DLTensor *x, const DLTensor *residual,
                                    const DLTensor *weight, float eps, unsigned flags, DLTensor *residual_out,
                                    DLTensor *y) {
    Checker check("halyard_add_rms_norm");
    const FusedRows t = check_fused_rows(check, x, residual, residual_out, y);
    const View w = check.row_parameter("weight", weight, t.x);
    check.no_overlap(t.residual_out, w, false);
    check.no_overlap(t.y, w, false);
    RmsNormScalars scalars = rms_norm_scalars(check, t.x, eps, flags, 1.0f);
    if (!check.failed()) {
        run_fused(context, rms_norm(w, &scalars), t.x, t.residual, t.residual_out, t.y);
    }
    return check.status();
}

halyard_status halyard_softmax(const halyard_context *context, const DLTensor *x, float scale, DLTensor *y) {
    Checker check("halyard_softmax");
    const View xs = check.tensor("x", x), ys = check.output("y", y);
    check_rows(check, xs, {&ys});
    check.no_overlap(ys, xs, true);
    check.finite("scale", scale);
    if (!check.failed()) {
        run_softmax(context, xs, scale, ys);
    }
    return check.status();
}
