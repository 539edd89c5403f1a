// Feed-forward networks on the processor as one call: norm, first GEMM with its activation or gated unit, second GEMM, residual.
//
// A block of rows at a time: what lies between the GEMMs is written as the second one reads it, in f32, and does not
// leave the caches but for its size. What is multiplied is rounded to bf16 where the call says so; nothing else is.
#include <climits>

#include "core/cast.h"
#include "core/check_shapes.h"
#include "core/workspace.h"
#include "cpu/backend.h"
#include "cpu/linear/gemm.h"
#include "cpu/ops/norm_rows.h"

namespace halyard {
namespace {

/** What the first GEMM multiplies: rows of x as they are or after the norm; or, where the norm is deferred, as they are with what
 *  its epilogue needs of each row. */
class FfnInput {
public:
    /** Blocks of at most `block` rows. */
    FfnInput(const halyard_context &context, halyard_isa isa, const FfnCall &call, int64_t block, Workspace &workspace)
        : context_(context), isa_(isa), call_(call), workspace_(workspace), width_(call.x.width()),
          normalizes_(call.norm != HALYARD_NORM_NONE && !call.deferred_norm), x_(false) {
        x_.add(call.x);
        x_.merge();
        weight_floats_ = workspace.book<float>(normalizes_ ? widened_floats(call.norm_weight) : 0);
        bias_floats_ = workspace.book<float>(normalizes_ ? widened_floats(call.norm_bias) : 0);
        rows_ = workspace.book<float>(normalizes_ ? thread_bound(context) : 0, NormInF32::scratch_floats(width_));
        scales_ = workspace.book<float>(call.deferred_norm ? block : 0);
        means_ = workspace.book<float>(call.deferred_norm && call.norm == HALYARD_NORM_LAYER ? block : 0);
    }

    /** Once the workspace is there. */
    void prepare() {
        if (!normalizes_) {
            return;
        }
        weight_ = widened(isa_, call_.norm_weight, workspace_[weight_floats_]);
        bias_ = widened(isa_, call_.norm_bias, workspace_[bias_floats_]);
    }

    /** Scales and means of the rows that were loaded last, for a deferred norm; else null. */
    const float *scale() const { return workspace_[scales_]; }
    const float *mean() const { return workspace_[means_]; }

    void load(int64_t first_row, int64_t rows, const BlockedRows &blocked) const {
        if (normalizes_) {
            load_normalized(first_row, rows, blocked);
            return;
        }
        load_rows(context_, isa_, {x_, call_.x.dtype, first_row}, rows, width_, blocked);
        if (call_.deferred_norm) {
            float *const scale = workspace_[scales_], *const mean = workspace_[means_];
            on_threads(rows, size_of(call_.x.dtype), [&](int, int64_t begin, int64_t end) {
                row_statistics(isa_, x_, call_.x.dtype, call_.norm, call_.rms, first_row + begin, end - begin,
                               scale + begin, mean ? mean + begin : nullptr);
            });
        }
    }

private:
    /** Calls run(thread, begin, end) for parts of `rows` rows with elements of so many bytes. */
    template<typename Run>
    void on_threads(int64_t rows, int64_t element_bytes, const Run &run) const {
        const int threads =
            static_cast<int>(std::min<int64_t>(threads_for(context_, rows * width_ * element_bytes), rows));
        run_tasks(context_, threads,
                  [&](int index) { run(index, rows * index / threads, rows * (index + 1) / threads); });
    }

    void load_normalized(int64_t first_row, int64_t rows, const BlockedRows &blocked) const {
        on_threads(rows, size_of(DType::f32), [&](int thread, int64_t begin, int64_t end) {
            NormInF32 norm(isa_, call_.x.dtype, call_.norm, call_.rms, weight_, bias_, width_,
                           workspace_[rows_] + thread * NormInF32::scratch_floats(width_));
            int64_t row = begin;
            x_.for_each_piece(
                {first_row + begin, first_row + end, 0, width_}, 1, width_,
                [&](const Rows::Piece &piece) { blocked.store_row(isa_, row++, norm(piece.data[0]), width_); });
            blocked.complete(begin, end, width_);
        });
        blocked.clear_from(rows, width_);
    }

    const halyard_context &context_;
    const halyard_isa isa_;
    const FfnCall &call_;
    const Workspace &workspace_;
    const int64_t width_;
    const bool normalizes_;
    Rows x_;
    Workspace::Piece<float> weight_floats_, bias_floats_, rows_, scales_, means_;
    View weight_, bias_;  // f32
};

}  // namespace

void cpu::ffn(Checker &check, const halyard_context &context, const FfnCall &call) {
    const halyard_isa isa = best_isa(context.max_isa);
    const int64_t rows = row_count(call.x), block = std::min(rows, block_rows(rows));
    const int64_t d_ff = call.up->out_features;
    const bool normalized = call.norm != HALYARD_NORM_NONE && !call.deferred_norm;

    Layer up(call.up, call.activation, call.beta), down(call.down, HALYARD_IDENTITY, 1.0f);
    const LayerGemm up_gemm(context, isa, rows, up), down_gemm(context, isa, rows, down);
    const DType between = call.rounded ? DType::bf16 : DType::f32;
    const DType multiplied = normalized || call.rounded ? between : call.x.dtype;
    const bool has_bias = call.bias.data || call.bias_up.data, has_bias_down = call.bias_down.data;
    Workspace workspace(context, device_of(call.x));
    const auto x_copy = workspace.book(x_bytes(context, isa, multiplied, *call.up, block));
    const auto hidden_rows = workspace.book(x_bytes(context, isa, between, *call.down, block));
    // Whole rows alone are reordered or rounded to 8 bits.
    const bool by_whole_rows = call.down->order || form_of_x(context, isa, between, *call.down) == XForm::int8;
    const auto whole_rows =
        workspace.book(by_whole_rows ? BlockedRows::bytes(XForm::f32, Tiling::max_rows(block), d_ff) : 0);
    const auto up_bias = workspace.book<float>(has_bias ? up.bias_floats() : 0);
    const auto down_bias = workspace.book<float>(has_bias_down ? down.bias_floats() : 0);
    FfnInput x(context, isa, call, block, workspace);
    const auto of_threads = workspace.book(std::max(up_gemm.scratch_bytes(), down_gemm.scratch_bytes()));
    if (!workspace.allocate(check)) {
        return;
    }
    if (has_bias) {
        up.set_bias(call.bias, call.bias_up, isa, workspace[up_bias]);
    }
    if (has_bias_down) {
        down.set_bias(call.bias_down, View(), isa, workspace[down_bias]);
    }
    x.prepare();

    Rows y(false);
    y.add(call.y);
    if (call.residual) {
        y.add(call.x);
    }
    y.merge();
    const Rows sums = rows_of_sums(call.sums, call.sums_up);
    for (int64_t row = 0; row < rows; row += block) {
        const int64_t count = std::min(block, rows - row);
        const XForm x_form = form_of_x(context, isa, multiplied, *call.up),
                    hidden_form = form_of_x(context, isa, between, *call.down);
        const Tiling up_tiling(isa, x_form, count), down_tiling(isa, hidden_form, count);
        const BlockedRows input = {workspace[x_copy], up_tiling.rows(), x_form, call.rounded, XGroups::of(*call.up)},
                          hidden = {workspace[hidden_rows], down_tiling.rows(), hidden_form, call.rounded,
                                    XGroups::of(*call.down)};
        x.load(row, count, input);
        const BlockedRows whole = {workspace[whole_rows], hidden.rows, XForm::f32};
        OutputView to_hidden;
        to_hidden.blocked = by_whole_rows ? &whole : &hidden;
        to_hidden.dtype = by_whole_rows ? DType::f32 : between;
        to_hidden.first_row = row;
        to_hidden.sums = call.sums.data ? &sums : nullptr;
        up_gemm.run({input}, up_tiling, count, x.scale(), x.mean(), to_hidden, workspace[of_threads]);
        if (by_whole_rows) {
            restore_rows(context, isa, whole, count, d_ff, hidden);
        }
        complete_rows(context, hidden, count, d_ff);

        OutputView destination;
        destination.rows = &y;
        destination.dtype = call.y.dtype;
        destination.has_residual = call.residual;
        destination.first_row = row;
        down_gemm.run({hidden}, down_tiling, count, nullptr, nullptr, destination, workspace[of_threads]);
    }
}

}  // namespace halyard
