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

/** The norm before the first product. */
class InputNorm {
public:
    InputNorm(const halyard_context &context, halyard_isa isa, const FfnCall &call)
        : context_(context), isa_(isa), call_(call), width_(call.x.width()) {}

    int64_t scratch_floats() const {
        return widened_floats(call_.norm_weight) + widened_floats(call_.norm_bias) +
               2 * width_ * thread_bound(context_);
    }

    void prepare(float *memory) {
        weight_ = widened(isa_, call_.norm_weight, memory);
        memory += widened_floats(call_.norm_weight);
        bias_ = widened(isa_, call_.norm_bias, memory);
        memory += widened_floats(call_.norm_bias);
        rows_ = memory;
    }

    /** Normalized rows of x into blocks. */
    void load(const Rows &x, int64_t first_row, int64_t rows, const BlockedRows &blocked) const {
        const int threads = static_cast<int>(std::min<int64_t>(threads_for(context_, rows * width_ * 4), rows));
        run_tasks(context_, threads, [&](int index) {
            NormRows kernel(isa_, DType::f32, call_.norm, call_.rms, weight_, bias_);
            float *const in_f32 = rows_ + 2 * width_ * index, *const normalized = in_f32 + width_;
            int64_t row = rows * index / threads;
            const Part part = {first_row + row, first_row + rows * (index + 1) / threads, 0, width_};
            x.for_each_piece(part, 1, width_, [&](const Rows::Piece &piece) {
                char *source = piece.data[0];
                if (call_.x.dtype != DType::f32) {
                    widen(isa_, {source, call_.x.dtype}, in_f32, 0, width_, 1);
                    source = reinterpret_cast<char *>(in_f32);
                }
                const TypedRows of_row = {reinterpret_cast<char *>(normalized), DType::f32};
                kernel(source, 0, of_row.data, 0, width_, 1);
                for (int64_t k = 0; k < width_; k += k_block) {
                    blocked.store(isa_, row, k, {of_row.data + k * size_of(DType::f32), DType::f32},
                                  std::min<int64_t>(k_block, width_ - k), 1);
                }
                row++;
            });
        });
        blocked.clear_from(rows, width_);
    }

private:
    const halyard_context &context_;
    const halyard_isa isa_;
    const FfnCall &call_;
    const int64_t width_;
    View weight_, bias_;
    float *rows_ = nullptr;  // two for each thread
};

}  // namespace

void cpu::ffn(Checker &check, const halyard_context &context, const FfnCall &call) {
    const halyard_isa isa = best_isa(context.max_isa);
    const int64_t rows = row_count(call.x), block = std::min(rows, block_rows(rows));
    const int64_t d_model = call.x.width(), d_ff = call.up->out_features;
    const bool plain_norm = call.norm != HALYARD_NORM_NONE && !call.deferred_norm;

    Layer up(call.up, call.activation, call.beta), down(call.down, HALYARD_IDENTITY, 1.0f);
    const LayerGemm up_gemm(context, isa, rows, up), down_gemm(context, isa, rows, down);
    InputNorm norm(context, isa, call);
    const DType between = call.rounded ? DType::bf16 : DType::f32;
    const XForm x_form = form_of_x(isa, plain_norm || call.rounded ? between : call.x.dtype, call.up->dtype);
    const XForm hidden_form = form_of_x(isa, between, call.down->dtype);
    const int64_t x_bytes = BlockedRows::bytes(x_form, Tiling::max_rows(block), d_model);
    const int64_t hidden_bytes = BlockedRows::bytes(hidden_form, Tiling::max_rows(block), d_ff);
    const bool has_bias = call.bias.data || call.bias_up.data, has_bias_down = call.bias_down.data;
    Workspace workspace(context, device_of(call.x));
    const auto x_copy = workspace.book(x_bytes), hidden_rows = workspace.book(hidden_bytes);
    const auto up_bias = workspace.book<float>(has_bias ? up.bias_floats() : 0);
    const auto down_bias = workspace.book<float>(has_bias_down ? down.bias_floats() : 0);
    const auto of_norm = workspace.book<float>(plain_norm ? norm.scratch_floats() : 0);
    const auto scales = workspace.book<float>(call.deferred_norm ? block : 0);
    const auto means = workspace.book<float>(call.deferred_norm && call.norm == HALYARD_NORM_LAYER ? block : 0);
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
    if (plain_norm) {
        norm.prepare(workspace[of_norm]);
    }
    float *const scale = workspace[scales], *const mean = workspace[means];

    Rows x(false), y(false);
    x.add(call.x);
    x.merge();
    y.add(call.y);
    if (call.residual) {
        y.add(call.x);
    }
    y.merge();
    for (int64_t row = 0; row < rows; row += block) {
        const int64_t count = std::min(block, rows - row);
        const Tiling up_tiling(isa, x_form, count), down_tiling(isa, hidden_form, count);
        const BlockedRows input = {workspace[x_copy], up_tiling.rows(), x_form, call.rounded},
                          hidden = {workspace[hidden_rows], down_tiling.rows(), hidden_form, call.rounded};
        if (plain_norm) {
            norm.load(x, row, count, input);
        } else {
            load_rows(context, isa, {x, call.x.dtype, row}, count, d_model, input);
        }
        if (call.deferred_norm) {
            const int threads = static_cast<int>(
                std::min<int64_t>(threads_for(context, count * d_model * size_of(call.x.dtype)), count));
            run_tasks(context, threads, [&](int index) {
                const int64_t begin = count * index / threads, end = count * (index + 1) / threads;
                row_statistics(isa, x, call.x.dtype, call.norm, call.rms, row + begin, end - begin, scale + begin,
                               mean ? mean + begin : nullptr);
            });
        }
        OutputView to_hidden;
        to_hidden.blocked = &hidden;
        to_hidden.dtype = between;
        up_gemm.run({input}, up_tiling, count, scale, mean, to_hidden, workspace[of_threads]);
        hidden.clear_from(count, d_ff);

        OutputView destination;
        destination.rows = &y;
        destination.dtype = call.y.dtype;
        destination.has_residual = call.residual;
        destination.first_row = row;
        down_gemm.run({hidden}, down_tiling, count, nullptr, nullptr, destination, workspace[of_threads]);
    }
}

}  // namespace halyard
