// The gradients of linear layers on the processor: dz, and what is multiplied with it or summed. Some rows of the batch at a time, whole
// blocks of every sum over rows, so that intermediates stay small and bits do not depend on it.
#include <cstring>

#include "core/check_shapes.h"
#include "core/view.h"
#include "core/workspace.h"
#include "cpu/backend.h"
#include "cpu/linear/activation_panels.h"
#include "cpu/linear/gemm_loop.h"
#include "cpu/linear/transposed_panels.h"
#include "cpu/ops/column_sum.h"

namespace halyard {
namespace {

/** Rows of the batch at a time: as many as make reading and writing the gradient of a weight cheap beside the product. */
constexpr int64_t gradient_rows = 4 * k_block;
static_assert(k_block % column_sum_rows == 0, "whole blocks of either sum");

View view_of(const FloatMatrix &x) {
    return view_of(const_cast<float *>(x.data), DType::f32, Device(), {x.rows, x.columns}, {x.pitch, 1});
}

/** The rows of a tensor at an even pitch: as they lie or, where leading axes leave gaps of their own, copied. */
class EvenRows {
public:
    /** At most `most` rows are asked for at a time. */
    EvenRows(Workspace &workspace, const View &view, int64_t most) : workspace_(workspace), rows_(false) {
        if (view.data) {
            rows_.add(view);
            rows_.merge();
            rows_.for_each_piece({0, rows_.count(), 0, rows_.width()}, INT64_MAX, rows_.width(),
                                 [&](const Rows::Piece &piece) { even_ &= piece.rows == rows_.count(); });
            copy_ = workspace.book<float>(even_ ? 0 : most, rows_.width());
        }
    }

    FloatMatrix part(int64_t first, int64_t count) const {
        const int64_t width = rows_.width();
        FloatMatrix part = {workspace_[copy_], count, width, width};
        float *to = workspace_[copy_];
        rows_.for_each_piece({first, first + count, 0, width}, INT64_MAX, width, [&](const Rows::Piece &piece) {
            const float *const from = reinterpret_cast<const float *>(piece.data[0]);
            if (even_) {
                part = {from, count, width, piece.pitch[0]};
                return;
            }
            for (int64_t row = 0; row < piece.rows; row++, to += width) {
                std::copy_n(from + row * piece.pitch[0], width, to);
            }
        });
        return part;
    }

private:
    const Workspace &workspace_;
    Rows rows_;
    bool even_ = true;
    Workspace::Piece<float> copy_;
};

/** A left operand of 16 columns of each matrix in turn, as gate and up take turns in a gated matrix's panels. Zeros fill the last
 *  panels. */
void load_in_turn(const halyard_context &context, const FloatMatrix &gate, const FloatMatrix &up, int64_t first,
                  int64_t rows, const BlockedRows &blocked) {
    const int64_t panels = (gate.columns + panel_width - 1) / panel_width, columns = 2 * panels * panel_width;
    const int threads = static_cast<int>(
        std::min<int64_t>(threads_for(context, rows * columns * static_cast<int64_t>(sizeof(float))), rows));
    run_tasks(context, threads, [&](int index) {
        for (int64_t row = rows * index / threads; row < rows * (index + 1) / threads; row++) {
            for (int64_t k = 0; k < columns; k += panel_width) {
                const FloatMatrix &from = k / panel_width % 2 == 0 ? gate : up;
                const int64_t column = k / (2 * panel_width) * panel_width;
                const int64_t count = std::min<int64_t>(panel_width, from.columns - column);
                float *const to = blocked.floats_at(row, k / k_block) + k % k_block;
                std::copy_n(from.data + (first + row) * from.pitch + column, count, to);
                std::fill_n(to + count, panel_width - count, 0.0f);
            }
        }
    });
    blocked.clear_from(rows, columns);
}

/** Products of one size or smaller, block of rows by block of rows, whose sums are stored as they are. */
class GradientGemm {
public:
    /** For products of at most this size, `block` rows at a time; none if `rows` is 0. */
    GradientGemm(const halyard_context &context, halyard_isa isa, Workspace &workspace, int64_t rows, int64_t block,
                 int64_t inputs, int64_t columns, int64_t scratch_floats)
        : context_(context), isa_(isa), workspace_(workspace), block_(std::min(rows, block)) {
        const int64_t bytes = activation_panel_floats(inputs, columns) * size_of(DType::f32);
        threads_ = threads_for(context, bytes * ((block_ + max_tile_rows - 1) / max_tile_rows));
        thread_bytes_ = WorkerMemory::bytes(Tiling::max_rows(block_), scratch_floats);
        left_ = workspace.book(rows > 0 ? BlockedRows::bytes(XForm::f32, Tiling::max_rows(block_), inputs) : 0);
        of_threads_ = workspace.book(rows > 0 ? threads_ * thread_bytes_ : 0);
    }

    /** Rows [first_row, first_row + rows) of y = start + left right, where start is nothing or y. load(row, count, blocked) stores `count`
     *  rows of the left operand, row 0 being the first of these. */
    template<typename Right, typename Load>
    void operator()(const Right &right, int64_t rows, const Load &load, const Rows &y, int64_t first_row,
                    const StartingSums &start) const {
        const int64_t inputs = right.shape().inputs;
        for (int64_t row = 0; row < rows; row += block_) {
            const int64_t count = std::min(block_, rows - row);
            const Tiling tiling(isa_, XForm::f32, count);
            const BlockedRows left = {workspace_[left_], tiling.rows(), XForm::f32};
            load(row, count, left);
            OutputView output;
            output.rows = &y;
            output.first_row = first_row + row;
            const EpilogueCall epilogue = {
                .kernel = kernels::epilogue_identity, .columns = y.width(), .gated = false, .y = output};
            StartingSums of_rows = start;
            of_rows.data += start.data ? row * start.pitch : 0;
            const int64_t left_bytes = BlockedRows::bytes(XForm::f32, tiling.rows(), inputs);
            run_gemm(context_, plan_gemm(isa_, right.shape(), tiling, count, left_bytes, threads_), right, {left},
                     of_rows, epilogue, workspace_[of_threads_], thread_bytes_,
                     in_place(tiling, count, y, first_row + row));
        }
    }

private:
    /** Sums of whole tiles and panels are made in y itself, which saves writing them twice. */
    static SumsInPlace in_place(const Tiling &tiling, int64_t rows, const Rows &y, int64_t first_row) {
        SumsInPlace sums;
        if (tiling.rows() == rows && y.width() % panel_width == 0) {
            y.for_each_piece({first_row, first_row + rows, 0, y.width()}, rows, y.width(),
                             [&](const Rows::Piece &piece) {
                                 if (piece.rows == rows && piece.pitch[0] <= INT32_MAX / max_tile_rows) {
                                     sums = {reinterpret_cast<float *>(piece.data[0]), piece.pitch[0]};
                                 }
                             });
        }
        return sums;
    }

    const halyard_context &context_;
    const halyard_isa isa_;
    const Workspace &workspace_;
    const int64_t block_;
    int threads_;
    int64_t thread_bytes_;
    Workspace::Piece<char> left_, of_threads_;
};

/** The gradient with respect to the values before the activation; `up` where weights are gated. */
struct Dz {
    FloatMatrix gate, up;
};

/** dz of some rows, in memory of its own where it is not dy. */
class DzRows {
public:
    DzRows(const LinearBackwardCall &call, Workspace &workspace, int64_t most)
        : call_(call), workspace_(workspace), dy_(workspace, call.dy, most), sums_(workspace, call.sums, most),
          sums_up_(workspace, call.sums_up, most) {
        const int64_t rows = call.activated || call.weights->gated ? most : 0;
        gate_ = workspace.book<float>(rows, call.dy.width());
        up_ = workspace.book<float>(call.weights->gated ? rows : 0, call.dy.width());
    }

    Dz part(Checker &check, const halyard_context &context, int64_t first, int64_t count) const {
        const FloatMatrix dy = dy_.part(first, count);
        if (!workspace_[gate_]) {
            return {dy, {}};
        }
        const int64_t width = dy.columns;
        const Dz dz = {{workspace_[gate_], count, width, width}, {workspace_[up_], count, width, width}};
        const View dys = view_of(dy), sums = view_of(sums_.part(first, count)), gate = view_of(dz.gate);
        if (call_.weights->gated) {
            const View sums_up = view_of(sums_up_.part(first, count)), up = view_of(dz.up);
            cpu::elementwise(check, context, {call_.gated_unit, sums, sums_up, dys, call_.beta, gate, up});
        } else {
            cpu::elementwise(check, context, {call_.activation, sums, dys, call_.beta, gate});
        }
        return dz;
    }

private:
    const LinearBackwardCall &call_;
    const Workspace &workspace_;
    const EvenRows dy_, sums_, sums_up_;
    Workspace::Piece<float> gate_, up_;
};

Rows rows_of(const View &view) {
    Rows rows(false);
    rows.add(view);
    rows.merge();
    return rows;
}

/** dx = dz W^T, by the panels that the layer was packed into. Every block of rows transposes them anew, so blocks are large. */
class InputGradient {
public:
    InputGradient(const halyard_context &context, halyard_isa isa, const LinearBackwardCall &call, Workspace &workspace,
                  int64_t most)
        : context_(context), isa_(isa), call_(call),
          inputs_(call.weights->gated ? call.weights->panels * panel_width : call.weights->out_features),
          product_(context, isa, workspace, call.dx.data ? most : 0, max_block_rows, inputs_, call.weights->in_features,
                   TransposedPanels::scratch_floats) {}

    void operator()(const Dz &dz, int64_t first) const {
        if (!call_.dx.data) {
            return;
        }
        const TransposedPanels panels(panels_of(*call_.weights), inputs_);
        const Rows rows = rows_of(view_of(dz.gate));
        const auto load = [&](int64_t row, int64_t count, const BlockedRows &blocked) {
            if (call_.weights->gated) {
                load_in_turn(context_, dz.gate, dz.up, row, count, blocked);
            } else {
                load_rows(context_, isa_, {rows, DType::f32, row}, count, inputs_, blocked);
            }
        };
        product_(panels, dz.gate.rows, load, rows_of(call_.dx), first, {});
    }

private:
    const halyard_context &context_;
    const halyard_isa isa_;
    const LinearBackwardCall &call_;
    const int64_t inputs_;  // of the product: outputs of the layer
    const GradientGemm product_;
};

/** dweight = dz^T x, or x^T dz where the layout is [in, out]: one of them transposed into rows, the other in panels. */
class WeightGradient {
public:
    WeightGradient(const halyard_context &context, halyard_isa isa, const LinearBackwardCall &call,
                   Workspace &workspace, int64_t most)
        : context_(context), call_(call), workspace_(workspace), wanted_(call.dweight.data || call.dweight_up.data),
          rows_(call.in_out ? call.x.width() : call.dy.width()),
          columns_(call.in_out ? call.dy.width() : call.x.width()),
          product_(context, isa, workspace, wanted_ ? rows_ : 0, block_rows(rows_), most, columns_,
                   PackedPanels::scratch_floats),
          panels_(workspace.book<float>(wanted_ ? activation_panel_floats(most, columns_) : 0)) {}

    void operator()(const FloatMatrix &x, const Dz &dz, bool accumulate) const {
        if (!wanted_) {
            return;
        }
        PanelMatrix panels = {};
        for (const auto &[gradient, of] : {std::pair{&call_.dweight, &dz.gate}, {&call_.dweight_up, &dz.up}}) {
            if (!gradient->data) {
                continue;
            }
            const FloatMatrix &left = call_.in_out ? x : *of, &right = call_.in_out ? *of : x;
            if (call_.in_out || panels.inputs == 0) {
                panels = pack_activations(context_, right, false, workspace_[panels_]);
            }
            StartingSums start;
            if (accumulate) {
                start = {reinterpret_cast<const float *>(gradient->data), gradient->strides[0], columns_};
            }
            const auto load = [&](int64_t row, int64_t count, const BlockedRows &blocked) {
                load_transposed(context_, left, row, count, blocked);
            };
            product_(PackedPanels(panels), rows_, load, rows_of(*gradient), 0, start);
        }
    }

private:
    const halyard_context &context_;
    const LinearBackwardCall &call_;
    const Workspace &workspace_;
    const bool wanted_;
    const int64_t rows_, columns_;  // of the gradient
    const GradientGemm product_;
    const Workspace::Piece<float> panels_;
};

/** dbias = the sums of dz over rows. */
class BiasGradient {
public:
    BiasGradient(const LinearBackwardCall &call, Workspace &workspace, int64_t most)
        : call_(call), workspace_(workspace),
          partials_(workspace.book<float>(call.dbias.data || call.dbias_up.data ? column_sum_blocks(most) : 0,
                                          call.dy.width())) {}

    void operator()(const halyard_context &context, halyard_isa isa, const Dz &dz, bool accumulate) const {
        for (const auto &[gradient, of] : {std::pair{&call_.dbias, &dz.gate}, {&call_.dbias_up, &dz.up}}) {
            if (gradient->data) {
                const View rows = view_of(*of);
                column_sums(context, isa, {rows.data, DType::f32, of->pitch}, of->rows, of->columns,
                            workspace_[partials_], reinterpret_cast<float *>(gradient->data), accumulate);
            }
        }
    }

private:
    const LinearBackwardCall &call_;
    const Workspace &workspace_;
    const Workspace::Piece<float> partials_;
};

/** What sums over no rows are. */
void clear_sums(const LinearBackwardCall &call) {
    for (const View *sums : {&call.dweight, &call.dweight_up, &call.dbias, &call.dbias_up}) {
        const int64_t rows = sums->rank > 1 ? sums->shape[0] : 1, pitch = sums->rank > 1 ? sums->strides[0] : 0;
        for (int64_t row = 0; sums->data && row < rows; row++) {
            std::memset(sums->data + row * pitch * size_of(DType::f32), 0, sums->width() * size_of(DType::f32));
        }
    }
}

}  // namespace

void cpu::linear_backward(Checker &check, const halyard_context &context, const LinearBackwardCall &call) {
    const halyard_isa isa = best_isa(context.max_isa);
    const int64_t rows = row_count(call.x), most = std::min(rows, gradient_rows);
    if (rows == 0) {
        if (!call.accumulate) {
            clear_sums(call);
        }
        return;
    }
    Workspace workspace(context, device_of(call.x));
    const EvenRows x(workspace, call.x, most);
    const DzRows dz_rows(call, workspace, most);
    const InputGradient dx(context, isa, call, workspace, most);
    const WeightGradient dweight(context, isa, call, workspace, most);
    const BiasGradient dbias(call, workspace, most);
    if (!workspace.allocate(check)) {
        return;
    }
    for (int64_t first = 0; first < rows; first += gradient_rows) {
        const int64_t count = std::min(gradient_rows, rows - first);
        const bool accumulate = call.accumulate || first > 0;
        const Dz dz = dz_rows.part(check, context, first, count);
        dx(dz, first);
        dweight(x.part(first, count), dz, accumulate);
        dbias(context, isa, dz, accumulate);
    }
}

}  // namespace halyard
