// Linear layers on a device: a GEMM, and what Halide's kernels make of its sums.
//
// What a GEMM can do itself, it does: a bias of y's type, the residual as its beta. For an activation or a gated
// unit the sums lie in scratch memory, in the type of x and the weights, and the unit overwrites them (the gate's half)
// or goes to y. Calls whose types differ are computed in f32 throughout, for which x and even the matrix are widened
// first: they are right, and slow. So are rows that do not lie at an even pitch, which are copied.
#include "core/calls/row_vector.h"
#include "core/check_shapes.h"
#include "cuda/backend.h"
#include "cuda/linear/gemm.h"
#include "cuda/linear/layer_steps.h"

namespace halyard::cuda {
void linear(Checker &check, const halyard_context &context, const LinearCall &call) {
    const halyard_weights &w = *call.weights;
    const int64_t rows = row_count(call.x);
    const DType dtype = common(call.x.dtype, w.dtype), y_dtype = call.y.dtype;
    const bool has_bias = call.bias.data || call.bias_up.data, has_residual = call.residual.data != nullptr;
    const bool shifted = call.row_scale.data || call.row_mean.data || w.has_column_bias;
    const bool has_unit = w.gated || call.activation != HALYARD_IDENTITY;

    // The GEMM alone; or the unit's result is y; or all in f32, and then the residual and y's type.
    const auto bias_fits = [&](DType type) {
        return !call.bias_up.data && (!call.bias.data || exact(call.bias.dtype, type));
    };
    const bool alone = !has_unit && !shifted && (y_dtype == dtype || y_dtype == DType::f32) && bias_fits(y_dtype);
    // Sums in f16 that are yet to be scaled might overflow.
    const bool direct = !alone && !has_residual && y_dtype == dtype && !(dtype == DType::f16 && shifted);
    const DType sums_dtype = alone ? y_dtype : direct ? dtype : DType::f32;
    const bool bias_in_product = !shifted && !w.gated && has_bias && bias_fits(sums_dtype);
    const bool bias_in_epilogue = (has_bias && !bias_in_product) || w.has_column_bias;

    const bool copy_x = call.x.dtype != dtype || even_pitch(call.x) < 0, copy_y = even_pitch(call.y) < 0;
    const int64_t x_pitch = copy_x ? aligned_pitch(w.in_features, dtype) : even_pitch(call.x);
    const int64_t y_pitch = copy_y ? aligned_pitch(w.out_features, y_dtype) : even_pitch(call.y);
    const bool in_place = has_residual && call.residual.data == call.y.data && !product_in_place(y_dtype);
    const bool copy_residual = has_residual && (!alone || in_place || even_pitch(call.residual) < 0);
    const int64_t residual_pitch = copy_residual  ? aligned_pitch(w.out_features, sums_dtype)
                                   : has_residual ? even_pitch(call.residual)
                                                  : 0;
    const int64_t sums_pitch = aligned_pitch(w.columns, sums_dtype), size = sizeof(float);

    Launches launches(check, context, call.y.device_id);
    Workspace workspace(context, device_of(call.y));
    const auto x_copy = workspace.book(copy_x ? rows * x_pitch * size_of(dtype) : 0);
    const auto y_copy = workspace.book(copy_y ? rows * y_pitch * size_of(y_dtype) : 0);
    const auto w_copy = workspace.book(w.dtype != dtype ? Steps::widened_bytes(w) : 0);
    const auto sums_piece = workspace.book(alone ? 0 : rows * sums_pitch * size_of(sums_dtype));
    const auto residual_copy = workspace.book(copy_residual ? rows * residual_pitch * size_of(sums_dtype) : 0);
    const auto bias_piece = workspace.book(has_bias ? w.columns * size : 0);
    const auto scale_piece = workspace.book(call.row_scale.data ? rows * size : 0);
    const auto mean_piece = workspace.book(call.row_mean.data ? rows * size : 0);
    const auto product_memory = workspace.book(product_workspace_bytes(launches));
    if (!workspace.allocate(check)) {
        return;
    }

    Steps steps(launches, context);
    steps.set_workspace(workspace[product_memory]);
    if (copy_x) {
        steps.cast(call.x, view_like(call.x, workspace[x_copy], dtype, x_pitch));
    }
    if (w.dtype != dtype) {
        steps.widen(w, workspace[w_copy]);
    }
    if (copy_residual) {
        steps.cast(call.residual, view_like(call.residual, workspace[residual_copy], sums_dtype, residual_pitch));
    }
    const auto side_by_side = [&](const View &vector, Workspace::Piece<char> piece) -> const float * {
        if (!vector.data) {
            return nullptr;
        }
        const View given = as_column(vector, call.x);
        steps.cast(given, view_like(given, workspace[piece], DType::f32, 1));
        return reinterpret_cast<const float *>(workspace[piece]);
    };
    EpilogueArgs shifts;
    shifts.row_scale = side_by_side(call.row_scale, scale_piece);
    shifts.row_mean = side_by_side(call.row_mean, mean_piece);
    const void *product_bias = nullptr;
    if (bias_in_product) {
        product_bias = call.bias.data;
        if (call.bias.dtype != sums_dtype) {
            steps.cast(steps.rows(call.bias.data, call.bias.dtype, 1, w.out_features, w.out_features),
                       steps.rows(workspace[bias_piece], sums_dtype, 1, w.out_features, w.out_features));
            product_bias = workspace[bias_piece];
        }
    } else if (bias_in_epilogue) {
        shifts.bias = steps.join_biases(w, call.bias, call.bias_up, reinterpret_cast<float *>(workspace[bias_piece]));
    }

    char *const y = copy_y ? workspace[y_copy] : call.y.data;
    const Matrix x = {copy_x ? workspace[x_copy] : call.x.data, x_pitch};
    const char *const matrix = w.dtype != dtype ? workspace[w_copy] : w.matrix;
    const Matrix none = {nullptr, 0},
                 residual = {copy_residual ? workspace[residual_copy] : call.residual.data, residual_pitch};
    if (alone) {
        steps.multiply(w, matrix, dtype, x, rows, y, y_dtype, y_pitch, product_bias, has_residual ? residual : none);
    } else {
        char *const sums = workspace[sums_piece];
        steps.multiply(w, matrix, dtype, x, rows, sums, sums_dtype, sums_pitch, product_bias, none);
        const Activation unit = {call.activation, call.beta};
        const bool to_y = direct || (y_dtype == DType::f32 && !has_residual);
        const bool nothing_left = !has_unit && !shifted && !shifts.bias;
        if (to_y || !nothing_left) {
            steps.finish(w, unit, shifts, sums, sums_dtype, sums_pitch, rows, to_y ? y : sums,
                         to_y ? y_pitch : sums_pitch);
        }
        if (!to_y) {
            const View result = steps.rows(sums, DType::f32, rows, w.out_features, sums_pitch);
            if (has_residual) {
                steps.add(result, steps.rows(residual.data, DType::f32, rows, w.out_features, residual_pitch), result);
            }
            steps.cast(result, steps.rows(y, y_dtype, rows, w.out_features, y_pitch));
        }
    }
    if (copy_y) {
        steps.cast(view_like(call.y, y, y_dtype, y_pitch), call.y);
    }
}

}  // namespace halyard::cuda
