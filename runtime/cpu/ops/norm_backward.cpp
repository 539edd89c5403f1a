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
    GradientRows(halyard_isa isa, const NormBackwardCall &call) : isa_(isa), call_(call) {
        weight_.set(call.weight.data, call.weight.width());
    }

    /** Where the norm has a weight, the rows are added to `dweight` and, of a LayerNorm, to `dbias`. */
    void operator()(const Rows::Piece &piece, const TypedRows &added, float *dweight, float *dbias) {
        const int64_t size = size_of(call_.x.dtype), columns = piece.columns;
        in_row_multiples(piece.rows, [&](int64_t first, int64_t count) {
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
            kernel(kernels::rms_norm_backward_weight)({x_, dy_, added_, eps, eps_outside_root, weight_offset,
                                                       moment_width, weight_, dweight_, dx_, dweight_});
        } else {
            kernel(kernels::rms_norm_backward)(
                {x_, dy_, added_, eps, eps_outside_root, weight_offset, moment_width, dx_});
        }
    }

    void layer_norm() const {
        const float eps = call_.scalars.eps;
        if (call_.weight.data) {
            kernel(kernels::layer_norm_backward_weight)(
                {x_, dy_, added_, eps, weight_, dweight_, dbias_, dx_, dweight_, dbias_});
        } else {
            kernel(kernels::layer_norm_backward)({x_, dy_, added_, eps, dx_});
        }
    }

    template<typename Arguments>
    KernelCall<Arguments> kernel(KernelOf<Arguments> name) const {
        return kernel_function(name, call_.x.dtype, isa_);
    }

    const halyard_isa isa_;
    const NormBackwardCall &call_;
    Buffer<2> x_, dy_, added_, dx_;
    Buffer<2, float> dweight_, dbias_;
    Buffer<1> weight_;
};

}  // namespace

void cpu::norm_backward(Checker &check, const halyard_context &c, const NormBackwardCall &call) {
    const DType dtype = call.x.dtype;
    const bool adds = call.dresidual_out.data, has_weight = call.weight.data;
    Rows rows(false);
    for (const View *view : {&call.x, &call.dy, &call.dx}) {
        rows.add(*view);
    }
    if (adds) {
        rows.add(call.dresidual_out);
    }
    rows.merge();
    const halyard_isa isa = best_isa(c.max_isa);
    const int64_t width = rows.width(), count = rows.count();
    // Where nothing is summed over rows, a thread's are one block.
    const int most_threads = row_threads(c, count * rows.bytes_per_row());
    const bool sums = call.dweight.data || call.dbias.data;
    const int64_t block_rows = sums ? column_sum_rows : std::max<int64_t>(1, (count + most_threads - 1) / most_threads);
    const int64_t blocks = (count + block_rows - 1) / block_rows;
    const int threads = static_cast<int>(std::clamp<int64_t>(blocks, 1, most_threads));

    // The sums of each block; of a thread, where nobody wants to know them.
    Workspace workspace(c, device_of(call.x));
    const int64_t weight_rows = call.dweight.data ? blocks : has_weight ? threads : 0;
    const int64_t bias_rows = call.dbias.data ? blocks : has_weight ? threads : 0;
    const auto weight_sums = workspace.book<float>(weight_rows, width),
               bias_sums = workspace.book<float>(bias_rows, width);
    const auto zeros = workspace.book(adds ? 0 : width, size_of(dtype));
    if (!workspace.allocate(check)) {
        return;
    }
    if (!adds) {
        std::memset(workspace[zeros], 0, width * size_of(dtype));
    }
    run_tasks(c, threads, [&](int index) {
        GradientRows gradient(isa, call);
        RowSums dy_sums(isa, dtype);
        for (int64_t block = blocks * index / threads; block < blocks * (index + 1) / threads; block++) {
            const auto sums_of_block = [&](Workspace::Piece<float> sums, const View &wanted) {
                float *const row = workspace[sums] + (wanted.data ? block : index) * width;
                std::memset(row, 0, width * sizeof(float));
                return row;
            };
            float *const dweight = weight_rows > 0 ? sums_of_block(weight_sums, call.dweight) : nullptr;
            float *const dbias = bias_rows > 0 ? sums_of_block(bias_sums, call.dbias) : nullptr;
            const int64_t first = block * block_rows, end = std::min(count, first + block_rows);
            rows.for_each_piece({first, end, 0, width}, INT_MAX, width, [&](const Rows::Piece &piece) {
                if (dbias && !has_weight) {
                    dy_sums.add({piece.data[1], dtype, piece.pitch[1]}, piece.rows, width, dbias, true);
                }
                gradient(piece,
                         adds ? TypedRows{piece.data[3], dtype, piece.pitch[3]} : TypedRows{workspace[zeros], dtype, 0},
                         dweight, dbias);
            });
        }
    });
    const auto finish = [&](const View &sums, float *partials) {
        if (sums.data) {
            add_column_sums(c, isa, partials, blocks, width, reinterpret_cast<float *>(sums.data), call.accumulate);
        }
    };
    finish(call.dweight, workspace[weight_sums]);
    finish(call.dbias, workspace[bias_sums]);
}

}  // namespace halyard
