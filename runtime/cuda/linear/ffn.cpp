// Feed-forward networks on a device: two GEMMs with what lies between them in scratch memory, as linear.cpp has one.
#include <algorithm>

#include "core/calls/row_vector.h"
#include "core/check_shapes.h"
#include "cuda/backend.h"
#include "cuda/linear/gemm.h"
#include "cuda/linear/layer_steps.h"
#include "cuda/ops/operations.h"

namespace halyard::cuda {
namespace {

// Intermediates of a feed-forward network take about this much: so many rows go through it at a time, at least some.
constexpr int64_t most_intermediate_bytes = int64_t{1} << 29, least_rows = 1024;

}  // namespace

void ffn(Checker &check, const halyard_context &context, const FfnCall &call) {
    const halyard_weights &up = *call.up, &down = *call.down;
    const int64_t rows = row_count(call.x), d_model = call.x.width(), d_ff = up.out_features, size = sizeof(float);
    const DType dtype = common(common(call.x.dtype, up.dtype), common(call.x.dtype, down.dtype)),
                y_dtype = call.y.dtype;
    const bool plain_norm = call.norm != HALYARD_NORM_NONE && !call.deferred_norm, deferred = call.deferred_norm;
    const bool has_mean = deferred && call.norm == HALYARD_NORM_LAYER, residual = call.residual;
    const bool has_bias = call.bias.data || call.bias_up.data, shifted = deferred || up.has_column_bias;
    const bool has_unit = up.gated || call.activation != HALYARD_IDENTITY;

    // Sums in f16 that are yet to be scaled might overflow.
    const DType sums_dtype = dtype == DType::f16 && shifted ? DType::f32 : dtype;
    const bool bias_in_product =
        !shifted && !up.gated && has_bias && (!call.bias.data || exact(call.bias.dtype, sums_dtype));
    const bool finishes = has_unit || shifted || (has_bias && !bias_in_product);
    const bool bias_down = call.bias_down.data != nullptr;
    const DType down_dtype =
        (y_dtype == dtype || y_dtype == DType::f32) && (!bias_down || exact(call.bias_down.dtype, y_dtype))
            ? y_dtype
            : DType::f32;

    const bool copy_x = call.x.dtype != dtype || even_pitch(call.x) < 0;
    const int64_t x_pitch = copy_x ? aligned_pitch(d_model, dtype) : even_pitch(call.x);
    const bool copy_y = even_pitch(call.y) < 0 || down_dtype != y_dtype;
    const int64_t y_pitch = copy_y ? aligned_pitch(d_model, down_dtype) : even_pitch(call.y);
    const bool in_place = call.x.data == call.y.data && !product_in_place(down_dtype);
    const bool copy_residual = residual && (in_place || down_dtype != dtype);
    const bool converts_norm = plain_norm && call.x.dtype != dtype;
    const int64_t norm_pitch = aligned_pitch(d_model, dtype), sums_pitch = aligned_pitch(up.columns, sums_dtype);
    const bool rounds_hidden = sums_dtype != dtype;
    const int64_t hidden_pitch = rounds_hidden ? aligned_pitch(d_ff, dtype) : sums_pitch;
    const int64_t row_bytes = sums_pitch * size_of(sums_dtype) + norm_pitch * size_of(dtype);
    const int64_t block = std::min(rows, std::max(least_rows, most_intermediate_bytes / row_bytes));

    Launches launches(check, context, call.y.device_id);
    Workspace workspace(context, device_of(call.y));
    const auto x_copy = workspace.book(copy_x ? rows * x_pitch * size_of(dtype) : 0);
    const auto y_copy = workspace.book(copy_y ? rows * y_pitch * size_of(down_dtype) : 0);
    const auto residual_copy = workspace.book(copy_residual ? rows * d_model * size : 0);
    const auto up_copy = workspace.book(up.dtype != dtype ? Steps::widened_bytes(up) : 0);
    const auto down_copy = workspace.book(down.dtype != dtype ? Steps::widened_bytes(down) : 0);
    const auto normed = workspace.book(plain_norm ? block * norm_pitch * size_of(dtype) : 0);
    const auto norm_weight = workspace.book(converts_norm && call.norm_weight.data ? d_model * size : 0);
    const auto norm_bias = workspace.book(converts_norm && call.norm_bias.data ? d_model * size : 0);
    const auto sums_piece = workspace.book(block * sums_pitch * size_of(sums_dtype));
    const auto hidden_piece = workspace.book(rounds_hidden ? block * hidden_pitch * size_of(dtype) : 0);
    const auto scale_piece = workspace.book(deferred ? rows * size : 0);
    const auto mean_piece = workspace.book(has_mean ? rows * size : 0);
    const auto bias_piece = workspace.book(has_bias ? up.columns * size : 0);
    const auto bias_down_piece = workspace.book(bias_down && call.bias_down.dtype != down_dtype ? d_model * size : 0);
    const auto product_memory = workspace.book(product_workspace_bytes(launches));
    if (!workspace.allocate(check)) {
        return;
    }

    Steps steps(launches, context);
    steps.set_workspace(workspace[product_memory]);
    View x = call.x;
    if (copy_x) {
        x = view_like(call.x, workspace[x_copy], dtype, x_pitch);
        steps.cast(call.x, x);
    }
    if (up.dtype != dtype) {
        steps.widen(up, workspace[up_copy]);
    }
    if (down.dtype != dtype) {
        steps.widen(down, workspace[down_copy]);
    }
    if (copy_residual) {
        steps.cast(call.x, view_like(call.x, workspace[residual_copy], down_dtype, d_model));
    }
    const auto vector = [&](const void *data, DType type, int64_t count) {
        return steps.rows(data, type, 1, count, count);
    };
    const auto converted = [&](const View &given, DType type, Workspace::Piece<char> piece) -> const char * {
        if (!given.data || given.dtype == type) {
            return given.data;
        }
        steps.cast(vector(given.data, given.dtype, given.width()), vector(workspace[piece], type, given.width()));
        return workspace[piece];
    };
    EpilogueArgs shifts;
    const void *product_bias = nullptr;
    if (bias_in_product) {
        product_bias = converted(call.bias, sums_dtype, bias_piece);
    } else {
        shifts.bias = steps.join_biases(up, call.bias, call.bias_up, reinterpret_cast<float *>(workspace[bias_piece]));
    }
    const char *const down_bias = converted(call.bias_down, down_dtype, bias_down_piece);

    View weight = call.norm_weight, bias = call.norm_bias;
    if (converts_norm) {
        weight.data = const_cast<char *>(converted(call.norm_weight, dtype, norm_weight));
        bias.data = const_cast<char *>(converted(call.norm_bias, dtype, norm_bias));
        weight.dtype = bias.dtype = dtype;
    }
    if (deferred) {
        const auto vector_of_rows = [&](Workspace::Piece<char> piece) {
            return view_of(workspace[piece], DType::f32, {true, launches.ordinal()}, {rows}, {1});
        };
        const View scale = vector_of_rows(scale_piece), mean = has_mean ? vector_of_rows(mean_piece) : View();
        norm_statistics(check, context,
                        {call.norm, steps.rows(x.data, dtype, rows, d_model, x_pitch), mean, scale, call.rms});
    }

    char *const y = copy_y ? workspace[y_copy] : call.y.data;
    const char *const added = copy_residual ? workspace[residual_copy] : residual ? x.data : nullptr;
    const int64_t added_pitch = copy_residual ? d_model : x_pitch;
    const Activation unit = {call.activation, call.beta};
    for (int64_t row = 0; row < rows; row += block) {
        const int64_t count = std::min(block, rows - row);
        Matrix input = {x.data + row * x_pitch * size_of(dtype), x_pitch};
        if (plain_norm) {
            norm(check, context,
                 {call.norm, steps.rows(input.data, dtype, count, d_model, x_pitch), weight, bias,
                  steps.rows(workspace[normed], dtype, count, d_model, norm_pitch), call.rms});
            input = {workspace[normed], norm_pitch};
        }
        char *const sums = workspace[sums_piece];
        const Matrix none = {nullptr, 0};
        steps.multiply(up, up.dtype != dtype ? workspace[up_copy] : up.matrix, dtype, input, count, sums, sums_dtype,
                       sums_pitch, product_bias, none);
        if (finishes) {
            shifts.row_scale = deferred ? reinterpret_cast<const float *>(workspace[scale_piece]) + row : nullptr;
            shifts.row_mean = has_mean ? reinterpret_cast<const float *>(workspace[mean_piece]) + row : nullptr;
            steps.finish(up, unit, shifts, sums, sums_dtype, sums_pitch, count, sums, sums_pitch);
        }
        Matrix hidden = {sums, sums_pitch};
        if (rounds_hidden) {
            steps.cast(steps.rows(sums, sums_dtype, count, d_ff, sums_pitch),
                       steps.rows(workspace[hidden_piece], dtype, count, d_ff, hidden_pitch));
            hidden = {workspace[hidden_piece], hidden_pitch};
        }
        const Matrix c = {added ? added + row * added_pitch * size_of(down_dtype) : nullptr, added_pitch};
        steps.multiply(down, down.dtype != dtype ? workspace[down_copy] : down.matrix, dtype, hidden, count,
                       y + row * y_pitch * size_of(down_dtype), down_dtype, y_pitch, down_bias, c);
    }
    if (copy_y) {
        steps.cast(view_like(call.y, y, down_dtype, y_pitch), call.y);
    }
}

}  // namespace halyard::cuda
