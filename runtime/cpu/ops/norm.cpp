// Row operations: the norms with and without residual, and softmax.
#include <climits>
#include <cmath>
#include <initializer_list>

#include "core/calls/norm.h"
#include "core/row_iterator.h"
#include "core/row_vector.h"
#include "cpu/ops/streaming.h"
#include "cuda/ops/operations.h"

namespace halyard {
namespace {

// A fused add and norm works on blocks of rows of about this many bytes, so that the sum is still in the first-level
// cache when the norm reads it.
constexpr int64_t fused_block_bytes = 16 * 1024;

// A row operation can be streamed if a row fits a tile: 16384 f32 features.
constexpr int64_t row_tile_bytes = 64 * 1024;

Rows rows_of(std::initializer_list<const View *> views) {
    Rows rows(false);
    for (const View *view : views) {
        rows.add(*view);
    }
    rows.merge();
    return rows;
}

/** `reduced` features of each row enter its reductions. */
void run(Checker &check, const halyard_context *context, const RowOperation &operation, int64_t reduced, const View &x,
         const View &y) {
    if (y.empty()) {
        return;
    }
    if constexpr (has_cuda) {
        if (y.on_cuda) {
            cuda::row(check, context, operation, reduced, x, y);
            return;
        }
    }
    const Rows rows = rows_of({&x, &y});
    const halyard_context &c = context_or_default(context);
    const halyard_isa isa = best_isa(c.max_isa);
    const int64_t size = size_of(y.dtype), row_bytes = rows.width() * size;
    const bool stream =
        should_stream(c, rows.count() * rows.bytes_per_row()) && row_bytes <= row_tile_bytes && x.data != y.data;

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

void run_fused(Checker &check, const halyard_context *context, const RowOperation &operation, const View &x,
               const View &residual, const View &sum, const View &y) {
    if (y.empty()) {
        return;
    }
    if constexpr (has_cuda) {
        if (y.on_cuda) {
            cuda::add_row(check, context, operation, x, residual, sum, y);
            return;
        }
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

void run_softmax(Checker &check, const halyard_context *context, const View &x, float scale, const View &y) {
    RowOperation whole, normalize;
    whole.kernel = Kernel::softmax;
    whole.scalar(&scale);
    normalize.kernel = Kernel::softmax_normalize;
    if (y.empty()) {
        return;
    }
    const Rows rows = rows_of({&x, &y});
    const int64_t exponentials_bytes = rows.width() * size_of(DType::f32);
    if (exponentials_bytes > row_tile_bytes || y.on_cuda) {
        run(check, context, whole, x.width(), x, y);
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

halyard_status partial_rms_norm(const char *name, const halyard_context *context, const DLTensor *x,
                                const DLTensor *weight, float eps, unsigned flags, float p, DLTensor *y) {
    Checker check(name, Devices::cpu_or_cuda);
    const View xs = check.tensor("x", x), ys = check.output("y", y);
    check_rows(check, xs, {&ys});
    const View w = check.row_parameter("weight", weight, xs);
    check.no_overlap(ys, xs, true);
    check.no_overlap(ys, w, false);
    RmsNormScalars scalars = rms_norm_scalars(check, "flags", xs, eps, flags, p);
    if (!check.failed()) {
        run(check, context, rms_norm(w, &scalars), scalars.moment_width, xs, ys);
    }
    return check.status();
}

halyard_status norm_statistics(Checker &check, const halyard_context *context, halyard_norm norm, const DLTensor *x,
                               float eps, unsigned flags, DLTensor *mean, DLTensor *scale) {
    const bool has_mean = norm == HALYARD_NORM_LAYER;
    const View xs = check.tensor("x", x);
    const View means = has_mean ? check_row_vector(check, "mean", mean, xs, true) : View();
    const View scales = check_row_vector(check, "scale", scale, xs, true);
    check_rows(check, xs, {});
    check.no_overlap(scales, xs, false);
    check.no_overlap(means, xs, false);
    check.no_overlap(means, scales, false);
    RmsNormScalars scalars = {};
    if (has_mean) {
        check.finite_not_negative("eps", eps);
    } else {
        scalars = rms_norm_scalars(check, "flags", xs, eps, flags, 1.0f);
        if (!check.failed() && (flags & HALYARD_RMS_UNIT_OFFSET)) {
            check.fail(HALYARD_INVALID_ARGUMENT, "flags has HALYARD_RMS_UNIT_OFFSET, which does not concern the scale");
        }
    }
    if (check.failed() || xs.empty()) {
        return check.status();
    }
    if constexpr (has_cuda) {
        if (xs.on_cuda) {
            cuda::row_statistics(check, context, norm, &scalars, &eps, xs, means, scales);
            return check.status();
        }
    }
    Rows rows(false);
    rows.add(xs);
    rows.merge();
    const halyard_context &c = context_or_default(context);
    const halyard_isa isa = best_isa(c.max_isa);
    constexpr int64_t at_once = 64;
    Split(c, rows).run([&](const Part &part) {
        float scale_part[at_once], mean_part[at_once];
        for (int64_t row = part.row; row < part.row_end; row += at_once) {
            const int64_t count = std::min(at_once, part.row_end - row);
            row_statistics(isa, rows, xs.dtype, norm, scalars, eps, row, count, scale_part, mean_part);
            scatter(scales, row, count, scale_part);
            if (has_mean) {
                scatter(means, row, count, mean_part);
            }
        }
    });
    return check.status();
}

}  // namespace

void row_statistics(halyard_isa isa, const Rows &x, DType dtype, halyard_norm norm, const RmsNormScalars &rms,
                    float eps, int64_t first_row, int64_t rows, float *scale, float *mean) {
    const bool has_mean = norm == HALYARD_NORM_LAYER;
    const KernelFunction kernel =
        kernel_function(has_mean ? Kernel::layer_norm_scale : Kernel::rms_norm_scale, dtype, isa);
    bool eps_outside_root = rms.eps_outside_root;
    Buffer row_buffer, result;
    float values[2];
    void *rms_arguments[] = {row_buffer.argument(), &eps, &eps_outside_root, result.argument()};
    void *layer_arguments[] = {row_buffer.argument(), &eps, result.argument()};
    result.set(values, has_mean ? 2 : 1, 1, 0);
    int64_t row = 0;
    x.for_each_piece({first_row, first_row + rows, 0, x.width()}, 1, x.width(), [&](const Rows::Piece &piece) {
        row_buffer.set(piece.data[0], piece.columns, 1, 0);
        kernel(has_mean ? layer_arguments : rms_arguments);
        scale[row] = values[0];
        if (has_mean) {
            mean[row] = values[1];
        }
        row++;
    });
}

}  // namespace halyard

using namespace halyard;

halyard_status halyard_rms_norm_scale(const halyard_context *context, const DLTensor *x, float eps, unsigned flags,
                                      DLTensor *scale) {
    Checker check("halyard_rms_norm_scale", Devices::cpu_or_cuda);
    return norm_statistics(check, context, HALYARD_NORM_RMS, x, eps, flags, nullptr, scale);
}

halyard_status halyard_layer_norm_scale(const halyard_context *context, const DLTensor *x, float eps, DLTensor *mean,
                                        DLTensor *scale) {
    Checker check("halyard_layer_norm_scale", Devices::cpu_or_cuda);
    return norm_statistics(check, context, HALYARD_NORM_LAYER, x, eps, 0, mean, scale);
}

halyard_status halyard_layer_norm(const halyard_context *context, const DLTensor *x, const DLTensor *weight,
                                  const DLTensor *bias, float eps, DLTensor *y) {
    Checker check("halyard_layer_norm", Devices::cpu_or_cuda);
    const View xs = check.tensor("x", x), ys = check.output("y", y);
    check_rows(check, xs, {&ys});
    const View w = check.row_parameter("weight", weight, xs), b = check.row_parameter("bias", bias, xs);
    check.no_overlap(ys, xs, true);
    check.no_overlap(ys, w, false);
    check.no_overlap(ys, b, false);
    check.finite_not_negative("eps", eps);
    if (!check.failed()) {
        run(check, context, layer_norm(w, b, &eps), xs.width(), xs, ys);
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
    Checker check("halyard_add_layer_norm", Devices::cpu_or_cuda);
    const FusedRows t = check_fused_rows(check, x, residual, residual_out, y);
    const View w = check.row_parameter("weight", weight, t.x), b = check.row_parameter("bias", bias, t.x);
    for (const View *output : {&t.residual_out, &t.y}) {
        check.no_overlap(*output, w, false);
        check.no_overlap(*output, b, false);
    }
    check.finite_not_negative("eps", eps);
    if (!check.failed()) {
        run_fused(check, context, layer_norm(w, b, &eps), t.x, t.residual, t.residual_out, t.y);
    }
    return check.status();
}

halyard_status halyard_add_rms_norm(const halyard_context *context, const DLTensor *x, const DLTensor *residual,
                                    const DLTensor *weight, float eps, unsigned flags, DLTensor *residual_out,
                                    DLTensor *y) {
    Checker check("halyard_add_rms_norm", Devices::cpu_or_cuda);
    const FusedRows t = check_fused_rows(check, x, residual, residual_out, y);
    const View w = check.row_parameter("weight", weight, t.x);
    check.no_overlap(t.residual_out, w, false);
    check.no_overlap(t.y, w, false);
    RmsNormScalars scalars = rms_norm_scalars(check, "flags", t.x, eps, flags, 1.0f);
    if (!check.failed()) {
        run_fused(check, context, rms_norm(w, &scalars), t.x, t.residual, t.residual_out, t.y);
    }
    return check.status();
}

halyard_status halyard_softmax(const halyard_context *context, const DLTensor *x, float scale, DLTensor *y) {
    Checker check("halyard_softmax", Devices::cpu_or_cuda);
    const View xs = check.tensor("x", x), ys = check.output("y", y);
    check_rows(check, xs, {&ys});
    check.no_overlap(ys, xs, true);
    check.finite("scale", scale);
    if (!check.failed()) {
        run_softmax(check, context, xs, scale, ys);
    }
    return check.status();
}
