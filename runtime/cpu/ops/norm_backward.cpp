// The backward pass of the norms on the processor: dx row by row, and sums over rows in blocks that threads take as a whole.
#include <algorithm>
#include <climits>
#include <cstring>

#include "core/row_iterator.h"
#include "core/workspace.h"
#include "cpu/backend.h"
#include "cpu/ops/column_sum.h"
#include "cpu/ops/norm_rows.h"

namespace halyard {
namespace {

/** A norm's kernel with all but its rows. One per task, as it holds the buffers. */
class GradientRows {
public:
    /** `dtype` is that of the rows, and of the weight if there is one. */
    GradientRows(halyard_isa isa, const NormBackwardCall &call, DType dtype, RowOrder order)
        : isa_(isa), call_(call), dtype_(dtype), order_(order) {
        weight_.set(call.weight.data, call.weight.width());
    }

    /** Where the norm has a weight, the rows are added to `dweight` and, of a LayerNorm, to `dbias`. */
    void operator()(const Rows::Piece &piece, const TypedRows &added, float *dweight, float *dbias) {
        const int64_t size = size_of(dtype_), columns = piece.columns;
        in_row_order(order_, piece.rows, [&](int64_t first, int64_t count) {
            const auto set = [&](Buffer<2> &buffer, int tensor) {
                buffer.set(piece.data[tensor] + first * piece.pitch[tensor] * size, columns, count,
                           piece.pitch[tensor]);
            };
            set(x_, 0);
            set(dy_, 1);
            set(dx_, 2);
            added_.set(added.row(first), columns, count, added.pitch);
            dweight_.set(dweight, columns, count, 0);
            dbias_.set(dbias, columns, count, 0);
            call_.norm == HALYARD_NORM_RMS ? rms_norm() : layer_norm();
        });
    }

private:
    void rms_norm() const {
        const auto &[eps, eps_outside_root, weight_offset, moment_width] = call_.scalars;
        if (call_.weight.data) {
            kernel(kernels::rms_norm_backward_weight)(
                {x_, dy_, added_, eps, eps_outside_root, weight_offset, moment_width, weight_, dx_, dweight_});
        } else {
            kernel(kernels::rms_norm_backward)(
                {x_, dy_, added_, eps, eps_outside_root, weight_offset, moment_width, dx_});
        }
    }

    void layer_norm() const {
        const float eps = call_.scalars.eps;
        if (call_.weight.data) {
            kernel(kernels::layer_norm_backward_weight)({x_, dy_, added_, eps, weight_, dx_, dweight_, dbias_});
        } else {
            kernel(kernels::layer_norm_backward)({x_, dy_, added_, eps, dx_});
        }
    }

    template<typename Arguments>
    KernelCall<Arguments> kernel(KernelOf<Arguments> name) const {
        return kernel_function(name, dtype_, isa_);
    }

    const halyard_isa isa_;
    const NormBackwardCall &call_;
    const DType dtype_;
    const RowOrder order_;
    Buffer<2> x_, dy_, added_, dx_;
    Buffer<2, float> dweight_, dbias_;
    Buffer<1> weight_;
};

/** Holds a row of each tensor of a mixed call in f32, for every thread. */
class WidenedRows {
public:
    WidenedRows(Workspace &workspace, halyard_isa isa, const NormBackwardCall &call, int threads)
        : workspace_(workspace), isa_(isa), dtype_(call.x.dtype), adds_(call.dresidual_out.data),
          rows_(workspace.book<float>(call.is_mixed() ? threads : 0, tensors * call.x.width())) {}

    /** Fills a thread's rows with the contents of `given`, but for dx. */
    Rows::Piece load(const Rows::Piece &given, int thread) const {
        Rows::Piece row = given;
        for (int i = 0; i < (adds_ ? tensors : tensors - 1); i++) {
            row.data[i] = reinterpret_cast<char *>(workspace_[rows_] + (thread * tensors + i) * given.columns);
            if (i != dx) {
                cast(isa_, {given.data[i], dtype_}, {row.data[i], DType::f32}, given.columns, 1);
            }
        }
        return row;
    }

    /** Rounds dx of `row` into `given`. */
    void store(const Rows::Piece &row, const Rows::Piece &given) const {
        cast(isa_, {row.data[dx], DType::f32}, {given.data[dx], dtype_}, given.columns, 1);
    }

private:
    static constexpr int tensors = 4, dx = 2;  // x, dy, dx, dresidual_out

    const Workspace &workspace_;
    const halyard_isa isa_;
    const DType dtype_;
    const bool adds_;
    const Workspace::Piece<float> rows_;
};

/** A sum over rows, of each block for itself; of each thread, where a kernel writes it and nobody wants to know it. */
class BlockSums {
public:
    BlockSums(Workspace &workspace, const View &wanted, bool written, int64_t blocks, int threads, int64_t width)
        : workspace_(workspace), wanted_(wanted), written_(wanted.data || written), blocks_(blocks), width_(width),
          pitch_((width + line_floats - 1) / line_floats * line_floats),
          rows_(workspace.book<float>(wanted.data ? blocks
                                      : written   ? threads
                                                  : 0,
                                      pitch_)) {}

    /** The sum of a block, at +0, or null. */
    float *begin(int64_t block, int thread) const {
        if (!written_) {
            return nullptr;
        }
        float *const row = workspace_[rows_] + (wanted_.data ? block : thread) * pitch_;
        std::memset(row, 0, width_ * sizeof(float));
        return row;
    }

    void finish(const halyard_context &context, halyard_isa isa, bool accumulate) const {
        if (wanted_.data) {
            const TypedRows partials = {reinterpret_cast<char *>(workspace_[rows_]), DType::f32, pitch_};
            add_column_sums(context, isa, partials, blocks_, width_, reinterpret_cast<float *>(wanted_.data),
                            accumulate);
        }
    }

private:
    static constexpr int64_t line_floats = 16;  // kernels take sums to begin at lines

    const Workspace &workspace_;
    const View &wanted_;
    const bool written_;
    const int64_t blocks_, width_, pitch_;
    const Workspace::Piece<float> rows_;
};

Rows rows_of(const NormBackwardCall &call) {
    Rows rows(false);
    for (const View *view : {&call.x, &call.dy, &call.dx, &call.dresidual_out}) {
        if (view != &call.dresidual_out || view->data) {
            rows.add(*view);
        }
    }
    rows.merge();
    return rows;
}

}  // namespace

void cpu::norm_backward(Checker &check, const halyard_context &c, const NormBackwardCall &call) {
    const DType dtype = call.x.dtype;
    const bool adds = call.dresidual_out.data, has_weight = call.weight.data, mixed = call.is_mixed();
    const DType computed = mixed ? DType::f32 : dtype;
    const Rows rows = rows_of(call);
    const halyard_isa isa = best_isa(c.max_isa);
    const int64_t width = rows.width(), count = rows.count();
    // Where nothing is summed over rows, a thread's are one block.
    const int most_threads = row_threads(c, count * rows.bytes_per_row());
    const bool sums = call.dweight.data || call.dbias.data;
    const int64_t block_rows = sums ? column_sum_rows : std::max<int64_t>(1, (count + most_threads - 1) / most_threads);
    const int64_t blocks = (count + block_rows - 1) / block_rows;
    const int threads = static_cast<int>(std::clamp<int64_t>(blocks, 1, most_threads));

    const RowOrder order = row_order(threads, rows, 1024);  // kernels take two rows side by side

    Workspace workspace(c, device_of(call.x));
    const BlockSums dweight(workspace, call.dweight, has_weight, blocks, threads, width);
    const BlockSums dbias(workspace, call.dbias, has_weight, blocks, threads, width);
    const auto zeros = workspace.book(adds ? 0 : width, size_of(computed));
    const WidenedRows widened(workspace, isa, call, threads);
    if (!workspace.allocate(check)) {
        return;
    }
    if (!adds) {
        std::memset(workspace[zeros], 0, width * size_of(computed));
    }
    run_tasks(c, threads, [&](int index) {
        GradientRows gradient(isa, call, computed, order);
        RowSums dy_sums(isa, dtype);
        for (int64_t block = blocks * index / threads; block < blocks * (index + 1) / threads; block++) {
            float *const weight_sums = dweight.begin(block, index), *const bias_sums = dbias.begin(block, index);
            const int64_t first = block * block_rows, end = std::min(count, first + block_rows);
            rows.for_each_piece({first, end, 0, width}, mixed ? 1 : INT_MAX, width, [&](const Rows::Piece &piece) {
                if (bias_sums && !has_weight) {
                    dy_sums.add({piece.data[1], dtype, piece.pitch[1]}, piece.rows, width, bias_sums, true);
                }
                const Rows::Piece operands = mixed ? widened.load(piece, index) : piece;
                const TypedRows added = adds ? TypedRows{operands.data[3], computed, operands.pitch[3]}
                                             : TypedRows{workspace[zeros], computed, 0};
                gradient(operands, added, weight_sums, bias_sums);
                if (mixed) {
                    widened.store(operands, piece);
                }
            });
        }
    });
    dweight.finish(c, isa, call.accumulate);
    dbias.finish(c, isa, call.accumulate);
}

}  // namespace halyard
