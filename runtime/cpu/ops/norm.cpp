// Row kernels on the processor: the norms with and without residual, their statistics, and softmax.
#include <climits>
#include <cmath>
#include <initializer_list>

#include "core/calls/row_vector.h"
#include "core/workspace.h"
#include "cpu/backend.h"
#include "cpu/ops/add_rows.h"
#include "cpu/ops/norm_rows.h"
#include "cpu/ops/streaming.h"

namespace halyard {
namespace {

// A row operation can be streamed if a row fits a tile: 16384 f32 features.
constexpr int64_t row_tile_bytes = 64 * 1024;

// Bytes of a block of rows: what one kernel has written is in the first-level cache when the next one reads it, and little of a tile
// waits while it is copied out (docs/results/kernel-notes.md).
constexpr int64_t sum_block_bytes = 16384, exponentials_block_bytes = 8192, tile_block_bytes = 4096;

Rows rows_of(std::initializer_list<const View *> views) {
    Rows rows(false);
    for (const View *view : views) {
        rows.add(*view);
    }
    rows.merge();
    return rows;
}

/** `make_kernel`: returns what a task calls with pieces of x and y, as NormRows, which computes rows in this order. */
template<typename MakeKernel>
void run(const halyard_context &c, const View &x, const View &y, const MakeKernel &make_kernel) {
    const Rows rows = rows_of({&x, &y});
    const halyard_isa isa = best_isa(c.max_isa);
    const int64_t size = size_of(y.dtype), row_bytes = rows.width() * size;
    const bool stream = should_stream(c, rows.count() * rows.bytes_per_row(), rows_stream()) &&
                        row_bytes <= row_tile_bytes && x.data != y.data;

    const Split split(c, rows);
    const RowOrder order = stream ? RowOrder::one_by_one : row_order(split.parts(), rows);
    split.run([&](const Part &part) {
        auto kernel = make_kernel(isa, order);
        if (!stream) {
            rows.for_each_piece(part, INT_MAX, rows.width(), [&](const Rows::Piece &piece) {
                kernel(piece.data[0], piece.pitch[0], piece.data[1], piece.pitch[1], piece.columns, piece.rows);
            });
            return;
        }
        auto streamed = make_kernel(isa, order);
        const bool has_form = streamed.stream();
        Tile<row_tile_bytes> tile(true, isa);
        const int64_t tile_rows = std::max<int64_t>(1, tile_block_bytes / row_bytes);
        rows.for_each_piece(part, INT_MAX, rows.width(), [&](const Rows::Piece &piece) {
            const int64_t x_pitch = piece.pitch[0] * size, y_pitch = piece.pitch[1] * size;
            if (has_form && begins_lines(piece.data[1], y_pitch)) {
                streamed(piece.data[0], piece.pitch[0], piece.data[1], piece.pitch[1], piece.columns, piece.rows);
                return;
            }
            for (int64_t row = 0; row < piece.rows; row += tile_rows) {
                const int64_t count = std::min(tile_rows, piece.rows - row);
                char *const x = piece.data[0] + row * x_pitch;
                kernel(x, piece.pitch[0], tile.data(), piece.columns, piece.columns, count);
                tile.store_rows(piece.data[1] + row * y_pitch, row_bytes, count, y_pitch, x + count * x_pitch, x_pitch);
            }
        });
    });
}

void run_fused(const halyard_context &c, const NormCall &call) {
    const View &x = call.x, &residual = call.residual, &sum = call.residual_out, &y = call.y;
    const Rows rows = rows_of({&x, &residual, &sum, &y});
    const halyard_isa isa = best_isa(c.max_isa);
    const AddRows add(isa, x.dtype);
    const int64_t size = size_of(x.dtype), row_bytes = rows.width() * size;
    const bool may_stream =
        should_stream(c, rows.count() * rows.bytes_per_row(), rows_stream()) && row_bytes <= row_tile_bytes;
    const auto in_place = [&](const View &output) { return output.data == x.data || output.data == residual.data; };
    const bool stream_sum = may_stream && !in_place(sum), stream_y = may_stream && !in_place(y);

    Split(c, rows).run([&](const Part &part) {
        NormRows kernel(isa, x.dtype, call.norm, call.scalars, call.weight, call.bias);
        NormRows streamed(isa, x.dtype, call.norm, call.scalars, call.weight, call.bias);
        const bool has_form = stream_y && streamed.stream();
        Tile<row_tile_bytes> sum_tile(stream_sum, isa), y_tile(stream_y, isa);
        const int64_t block = std::max<int64_t>(1, (may_stream ? tile_block_bytes : sum_block_bytes) / row_bytes);
        rows.for_each_piece(part, block, rows.width(), [&](const Rows::Piece &piece) {
            const bool streams_itself = has_form && begins_lines(piece.data[3], piece.pitch[3] * size);
            const bool by_tile = stream_y && !streams_itself;
            char *const sum_data = stream_sum ? sum_tile.data() : piece.data[2];
            char *const y_data = by_tile ? y_tile.data() : piece.data[3];
            const int64_t sum_pitch = stream_sum ? piece.columns : piece.pitch[2];
            const int64_t y_pitch = by_tile ? piece.columns : piece.pitch[3];
            add({piece.data[0], x.dtype, piece.pitch[0]}, {piece.data[1], x.dtype, piece.pitch[1]},
                {sum_data, x.dtype, sum_pitch}, piece.columns, piece.rows);
            (streams_itself ? streamed : kernel)(sum_data, sum_pitch, y_data, y_pitch, piece.columns, piece.rows);
            if (stream_sum) {
                const int64_t next = piece.pitch[0] * size;
                sum_tile.store_rows(piece.data[2], row_bytes, piece.rows, piece.pitch[2] * size,
                                    piece.data[0] + piece.rows * next, next);
            }
            if (by_tile) {
                const int64_t next = piece.pitch[1] * size;
                y_tile.store_rows(piece.data[3], row_bytes, piece.rows, piece.pitch[3] * size,
                                  piece.data[1] + piece.rows * next, next);
            }
        });
    });
}

/** Computes a mixed call row by row: each is normalized in f32 and rounded once. */
void run_in_f32(Checker &check, const halyard_context &c, const NormCall &call) {
    const View &x = call.x, &y = call.y;
    const bool adds = call.residual.data;
    const Rows rows = adds ? rows_of({&x, &y, &call.residual, &call.residual_out}) : rows_of({&x, &y});
    const halyard_isa isa = best_isa(c.max_isa);
    const int64_t width = rows.width(), count = rows.count();
    const int threads = static_cast<int>(std::min<int64_t>(row_threads(c, count * rows.bytes_per_row()), count));

    Workspace workspace(c, device_of(x));
    const auto weight_floats = workspace.book<float>(widened_floats(call.weight));
    const auto bias_floats = workspace.book<float>(widened_floats(call.bias));
    const auto scratch = workspace.book<float>(threads, NormInF32::scratch_floats(width));
    if (!workspace.allocate(check)) {
        return;
    }
    const View weight = widened(isa, call.weight, workspace[weight_floats]);
    const View bias = widened(isa, call.bias, workspace[bias_floats]);
    const AddRows add(isa, x.dtype);
    run_tasks(c, threads, [&](int index) {
        NormInF32 norm(isa, x.dtype, call.norm, call.scalars, weight, bias, width,
                       workspace[scratch] + index * NormInF32::scratch_floats(width));
        const Part part = {count * index / threads, count * (index + 1) / threads, 0, width};
        rows.for_each_piece(part, 1, width, [&](const Rows::Piece &piece) {
            if (adds) {
                add({piece.data[0], x.dtype}, {piece.data[2], x.dtype}, {piece.data[3], x.dtype}, width, 1);
            }
            cast(isa, norm(piece.data[adds ? 3 : 0]), {piece.data[1], y.dtype}, width, 1);
        });
    });
}

/** Rows of a softmax, as NormRows those of norms. */
class SoftmaxRows {
public:
    SoftmaxRows(halyard_isa isa, DType dtype, float scale)
        : kernel_(kernel_function(kernels::softmax, dtype, isa)), size_(size_of(dtype)), scale_(scale) {}

    /** No kernel writes around the caches. */
    static bool stream() { return false; }

    void operator()(char *x, int64_t x_pitch, char *y, int64_t y_pitch, int64_t columns, int64_t rows) {
        in_row_order(RowOrder::side_by_side, rows, [&](int64_t first, int64_t count) {
            x_.set(x + first * x_pitch * size_, columns, count, x_pitch);
            y_.set(y + first * y_pitch * size_, columns, count, y_pitch);
            kernel_({x_, scale_, y_});
        });
    }

private:
    const KernelCall<arguments::Softmax> kernel_;
    const int64_t size_;
    const float scale_;
    Buffer<2> x_, y_;
};

}  // namespace

void cpu::norm(Checker &check, const halyard_context &c, const NormCall &call) {
    if (call.is_mixed()) {
        run_in_f32(check, c, call);
    } else if (call.residual.data) {
        run_fused(c, call);
    } else {
        run(c, call.x, call.y, [&](halyard_isa isa, RowOrder order) {
            return NormRows(isa, call.x.dtype, call.norm, call.scalars, call.weight, call.bias, order);
        });
    }
}

void cpu::softmax(Checker &, const halyard_context &c, const SoftmaxCall &call) {
    const View &x = call.x, &y = call.y;
    const Rows rows = rows_of({&x, &y});
    const int64_t exponentials_bytes = rows.width() * size_of(DType::f32);
    if (exponentials_bytes > row_tile_bytes) {
        run(c, x, y, [&](halyard_isa isa, RowOrder) { return SoftmaxRows(isa, x.dtype, call.scale); });
        return;
    }

    const halyard_isa isa = best_isa(c.max_isa);
    const int64_t size = size_of(y.dtype), row_bytes = rows.width() * size;
    const bool stream = should_stream(c, rows.count() * rows.bytes_per_row(), rows_stream()) && x.data != y.data;
    const auto exponentiate = kernel_function(kernels::softmax_exponentials, x.dtype, isa);
    const auto normalize = kernel_function(kernels::softmax_normalize, y.dtype, isa);
    const auto streamed = stream ? normalize.streamed() : std::nullopt;
    Split(c, rows).run([&](const Part &part) {
        Buffer<2> from, to;
        Buffer<2, float> exponentials;
        alignas(64) char exponentials_tile[row_tile_bytes];
        Tile<row_tile_bytes> tile(stream, isa);
        const int64_t block = std::max<int64_t>(1, exponentials_block_bytes / exponentials_bytes);
        rows.for_each_piece(part, block, rows.width(), [&](const Rows::Piece &piece) {
            const bool streams_itself = streamed && begins_lines(piece.data[1], piece.pitch[1] * size);
            const bool by_tile = stream && !streams_itself;
            char *const result = by_tile ? tile.data() : piece.data[1];
            const int64_t result_pitch = by_tile ? piece.columns : piece.pitch[1];
            // f32 rows in cache are their own place for the exponentials.
            const bool in_result = y.dtype == DType::f32 && !streams_itself;
            float *const scratch = reinterpret_cast<float *>(in_result ? result : exponentials_tile);
            const int64_t scratch_pitch = in_result ? result_pitch : piece.columns;
            // The next block is read from memory while exponentials are computed, which takes as long.
            const int64_t next = block * piece.pitch[0];
            in_row_order(RowOrder::side_by_side, piece.rows, [&](int64_t row, int64_t rows) {
                from.set(piece.data[0] + row * piece.pitch[0] * size, piece.columns, rows, piece.pitch[0]);
                exponentials.set(scratch + row * scratch_pitch, piece.columns, rows, scratch_pitch);
                exponentiate({from, call.scale, static_cast<int>(next <= INT_MAX ? next : 0), exponentials});
            });
            in_row_order(RowOrder::side_by_side, piece.rows, [&](int64_t row, int64_t rows) {
                exponentials.set(scratch + row * scratch_pitch, piece.columns, rows, scratch_pitch);
                to.set(result + row * result_pitch * size, piece.columns, rows, result_pitch);
                (streams_itself ? *streamed : normalize)({exponentials, to});
            });
            if (by_tile) {
                tile.store_rows(piece.data[1], row_bytes, piece.rows, piece.pitch[1] * size, nullptr, 0);
            }
        });
    });
}

void cpu::norm_statistics(Checker &, const halyard_context &c, const NormStatisticsCall &call) {
    Rows rows(false);
    rows.add(call.x);
    rows.merge();
    const bool has_mean = call.norm == HALYARD_NORM_LAYER;
    const halyard_isa isa = best_isa(c.max_isa);
    constexpr int64_t at_once = 64;
    Split(c, rows).run([&](const Part &part) {
        float scale_part[at_once], mean_part[at_once];
        for (int64_t row = part.row; row < part.row_end; row += at_once) {
            const int64_t count = std::min(at_once, part.row_end - row);
            row_statistics(isa, rows, call.x.dtype, call.norm, call.scalars, row, count, scale_part, mean_part);
            scatter(call.y, row, count, scale_part);
            if (has_mean) {
                scatter(call.mean, row, count, mean_part);
            }
        }
    });
}

void row_statistics(halyard_isa isa, const Rows &x, DType dtype, halyard_norm norm, const RmsNormScalars &scalars,
                    int64_t first_row, int64_t rows, float *scale, float *mean) {
    const bool has_mean = norm == HALYARD_NORM_LAYER;
    Buffer<2> row_buffer;
    Buffer<2, float> result;
    float values[2];
    result.set(values, has_mean ? 2 : 1, 1, 0);
    int64_t row = 0;
    x.for_each_piece({first_row, first_row + rows, 0, x.width()}, 1, x.width(), [&](const Rows::Piece &piece) {
        row_buffer.set(piece.data[0], piece.columns, 1, 0);
        if (has_mean) {
            kernel_function(kernels::layer_norm_scale, dtype, isa)({row_buffer, scalars.eps, result});
            mean[row] = values[1];
        } else {
            kernel_function(kernels::rms_norm_scale, dtype,
                            isa)({row_buffer, scalars.eps, scalars.eps_outside_root, result});
        }
        scale[row] = values[0];
        row++;
    });
}

}  // namespace halyard
