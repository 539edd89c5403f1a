// See gemm_epilogue.h.
#include "cpu/linear/gemm_epilogue.h"

#include <algorithm>
#include <cstring>

namespace halyard {
namespace {

// What stands for a scale, a mean, a bias and a residual that are not there. Adding -0 changes no value.
struct Neutral {
    float ones[max_block_rows] = {};
    float zeros[std::max(max_block_rows, max_group_columns)] = {};  // means of rows, or sums of columns
    float negative_zeros[max_group_columns] = {};
    uint16_t negative_zeros_16[max_group_columns] = {};

    constexpr Neutral() {
        for (float &one : ones) {
            one = 1.0f;
        }
        for (float &zero : negative_zeros) {
            zero = -0.0f;
        }
        for (uint16_t &zero : negative_zeros_16) {
            zero = 0x8000;
        }
    }
};

constexpr Neutral neutral;

}  // namespace

Layer::Layer(const halyard_weights *weights, halyard_activation activation, float beta)
    : weights(weights), beta(beta), bias(nullptr) {
    if (activation == HALYARD_SWISH && beta == 1.0f) {
        activation = HALYARD_SILU;
    }
    constexpr KernelOf<arguments::Epilogue> epilogues[][2] = {
#define HALYARD_KERNEL(name) {kernels::name, kernels::name##_gated},
#include "kernels/epilogue.inc"
#undef HALYARD_KERNEL
    };
    epilogue = epilogues[activation][weights->gated];
}

void Layer::set_bias(const View &bias_view, const View &bias_up, halyard_isa isa, float *memory) {
    const int stripes = weights->gated ? 2 : 1;
    std::fill_n(memory, bias_floats(), -0.0f);
    const View *const views[] = {&bias_view, &bias_up};
    for (int stripe = 0; stripe < stripes; stripe++) {
        const View &view = *views[stripe];
        if (!view.data) {
            continue;
        }
        // A row of 16 per panel, and what remains.
        const TypedRows matrix = {view.data, view.dtype, panel_width};
        const int64_t whole = view.width() / panel_width, rest = view.width() % panel_width;
        const int64_t pitch = stripes * panel_width;
        for (int64_t panel = 0; panel < whole; panel += max_block_rows) {
            const int64_t rows = std::min<int64_t>(whole - panel, max_block_rows);
            widen(isa, {matrix.row(panel), view.dtype, panel_width}, memory + panel * pitch + stripe * panel_width,
                  pitch, panel_width, rows);
        }
        if (rest > 0) {
            widen(isa, {matrix.row(whole), view.dtype}, memory + whole * pitch + stripe * panel_width, 0, rest, 1);
        }
    }
    bias = memory;
}

EpilogueCall Layer::bound_to(const float *row_scale, const float *row_mean, const OutputView &y) const {
    return {.kernel = epilogue,
            .columns = weights->out_features,
            .gated = weights->gated,
            .y = y,
            .beta = beta,
            .bias = bias,
            .column_sums = weights->column_sums,
            .column_bias = weights->column_bias,
            .row_scale = row_scale,
            .row_mean = row_mean};
}

EpilogueWriter::EpilogueWriter(const GemmPlan &plan, const EpilogueCall &call, const float *sums, float *scratch)
    : plan_(plan), call_(call), kernel_(kernel_function(call.kernel, call.y.dtype, plan.isa)),
      kernel_of_sums_(kernel_function(kernels::epilogue_identity, DType::f32, plan.isa)), sums_(sums),
      scratch_(scratch) {}

void EpilogueWriter::operator()(int64_t begin, int64_t end) {
    const int stripes = call_.gated ? 2 : 1;
    const int64_t columns_end = std::min(end / stripes * panel_width, call_.columns);
    const int64_t first_column = begin / stripes * panel_width;
    const OutputView &y = call_.y;
    if (y.sums) {
        store_sums(begin, end);
    }
    if (!y.rows) {
        store_blocked(begin, first_column, columns_end);
        return;
    }
    const Part part = {y.first_row, y.first_row + plan_.rows, first_column, columns_end};
    int64_t row = 0;
    y.rows->for_each_piece(part, max_block_rows, columns_end - first_column, [&](const Rows::Piece &piece) {
        store(begin, 0, row, piece.rows, piece.columns,
              {piece.data[0], piece.pitch[0], y.has_residual ? piece.data[1] : nullptr,
               y.has_residual ? piece.pitch[1] : 0});
        row += piece.rows;
    });
}

/** Panel by panel where gate and up take turns. */
void EpilogueWriter::store_sums(int64_t begin, int64_t end) {
    const int stripes = call_.gated ? 2 : 1;
    const int64_t at_once = call_.gated ? 1 : end - begin;
    for (int64_t panel = begin; panel < end; panel += at_once) {
        const int64_t column = panel / stripes * panel_width;
        const int64_t columns_end = std::min(column + at_once * panel_width, call_.columns), tensor = panel % stripes;
        const Part part = {call_.y.first_row, call_.y.first_row + plan_.rows, column, columns_end};
        int64_t row = 0;
        call_.y.sums->for_each_piece(part, max_block_rows, columns_end - column, [&](const Rows::Piece &piece) {
            store(begin, (panel - begin) * panel_width, row, piece.rows, piece.columns,
                  {.data = piece.data[tensor], .pitch = piece.pitch[tensor], .is_sums = true});
            row += piece.rows;
        });
    }
}

void EpilogueWriter::store_blocked(int64_t begin, int64_t first_column, int64_t columns_end) {
    const BlockedRows &blocked = *call_.y.blocked;
    int64_t column = first_column;
    while (column < columns_end) {
        const int64_t block_end = std::min(columns_end, (column / k_block + 1) * k_block), columns = block_end - column;
        const int64_t packed = (column - first_column) * (call_.gated ? 2 : 1);
        if (blocked.rounded) {
            const TypedRows rounded = {reinterpret_cast<char *>(scratch_), DType::bf16, max_group_columns};
            store(begin, packed, 0, plan_.rows, columns, {rounded.data, rounded.pitch});
            blocked.store(plan_.isa, 0, column, rounded, columns, plan_.rows);
        } else {
            char *data = reinterpret_cast<char *>(blocked.floats_at(0, column / k_block) + column % k_block);
            store(begin, packed, 0, plan_.rows, columns, {data, x_pitch});
        }
        column = block_end;
    }
}

/** `packed`: the first of the columns of sums, counted from panel `begin`. */
void EpilogueWriter::store(int64_t begin, int64_t packed, int64_t row, int64_t rows, int64_t columns,
                           const Target &to) {
    const int64_t rest = columns % panel_width, whole = columns - rest;
    if (whole > 0) {
        store_panels(begin, packed, row, rows, whole, to);
    }
    if (rest == 0) {
        return;
    }
    // A panel in memory of its own.
    constexpr int64_t most_rows = 32;
    alignas(64) char y[most_rows * panel_width * sizeof(float)], residual[sizeof(y)] = {};
    const int64_t size = to.is_sums ? static_cast<int64_t>(sizeof(float)) : size_of(call_.y.dtype);
    const int64_t first_packed = packed + whole * (call_.gated && !to.is_sums ? 2 : 1);
    for (int64_t first = 0; first < rows; first += most_rows) {
        const int64_t count = std::min(rows - first, most_rows);
        for (int64_t i = 0; to.residual && i < count; i++) {
            std::memcpy(residual + i * panel_width * size,
                        to.residual + ((first + i) * to.residual_pitch + whole) * size, rest * size);
        }
        store_panels(begin, first_packed, row + first, count, panel_width,
                     {y, panel_width, to.residual ? residual : nullptr, panel_width, to.is_sums});
        for (int64_t i = 0; i < count; i++) {
            std::memcpy(to.data + ((first + i) * to.pitch + whole) * size, y + i * panel_width * size, rest * size);
        }
    }
}

void EpilogueWriter::store_panels(int64_t begin, int64_t packed, int64_t row, int64_t rows, int64_t columns,
                                  const Target &to) {
    const int64_t pitch = plan_.sums_pitch(), column = begin * panel_width + packed;
    const int64_t sum_columns = plan_.group_panels * panel_width - packed;
    const auto vector = [&](const float *values, const float *absent) { return values ? values + column : absent; };
    sum_.set(sums_ + row * pitch + packed, sum_columns, rows, pitch);
    scale_.set((call_.row_scale ? call_.row_scale : neutral.ones) + row, rows);
    mean_.set((call_.row_mean ? call_.row_mean : neutral.zeros) + row, rows);
    // Without means their factors are 0 as well: 0 times the sum of a column that holds Inf is no 0.
    column_sums_.set(call_.row_mean ? vector(call_.column_sums, neutral.zeros) : neutral.zeros, sum_columns);
    column_bias_.set(vector(call_.column_bias, neutral.zeros), sum_columns);
    bias_.set(vector(call_.bias, neutral.negative_zeros), sum_columns);
    if (to.residual) {
        residual_.set(to.residual, columns, rows, to.residual_pitch);
    } else {
        const void *zeros = neutral.negative_zeros;
        const bool in_f32 = to.is_sums || call_.y.dtype == DType::f32;
        residual_.set(in_f32 ? zeros : neutral.negative_zeros_16, columns, rows, 0);
    }
    y_.set(to.data, columns, rows, to.pitch);
    (to.is_sums ? kernel_of_sums_ : kernel_)({.sum = sum_,
                                              .row_scale = scale_,
                                              .row_mean = mean_,
                                              .column_sums = column_sums_,
                                              .column_bias = column_bias_,
                                              .bias = bias_,
                                              .residual = residual_,
                                              .beta = call_.beta,
                                              .y = y_});
}

}  // namespace halyard
