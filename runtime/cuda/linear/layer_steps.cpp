// Casts, GEMMs and the kernels of what is made of their sums, as layers put them together.
#include "cuda/linear/layer_steps.h"

#include <algorithm>
#include <iterator>

#include "core/check_shapes.h"
#include "cuda/kernel_call.h"
#include "cuda/linear/gemm.h"
#include "cuda/ops/operations.h"

namespace halyard::cuda {
namespace {

// Each activation, in the order of halyard_activation: its kernel where nothing else is made of the sums, as activation
// and as gated unit, null where there is none, and the epilogues.
constexpr const KernelOf<halyard::arguments::Activation> *activations[] = {nullptr,
                                                                           &halyard::kernels::relu,
                                                                           &halyard::kernels::gelu,
                                                                           &halyard::kernels::gelu_tanh,
                                                                           &halyard::kernels::gelu_sigmoid,
                                                                           &halyard::kernels::silu,
                                                                           &halyard::kernels::swish,
                                                                           &halyard::kernels::sigmoid,
                                                                           &halyard::kernels::tanh,
                                                                           &halyard::kernels::exp,
                                                                           &halyard::kernels::relu2};
constexpr const KernelOf<halyard::arguments::Glu> *gated_units[] = {&halyard::kernels::bilinear,
                                                                    &halyard::kernels::reglu,
                                                                    &halyard::kernels::geglu,
                                                                    &halyard::kernels::geglu_tanh,
                                                                    nullptr,
                                                                    &halyard::kernels::swiglu_beta1,
                                                                    &halyard::kernels::swiglu,
                                                                    &halyard::kernels::glu,
                                                                    nullptr,
                                                                    nullptr,
                                                                    nullptr};
constexpr KernelOf<arguments::DeviceEpilogueIdentity> epilogues[] = {
#define HALYARD_KERNEL(name) kernels::device_##name,
#include "kernels/epilogue.inc"
#undef HALYARD_KERNEL
};
constexpr KernelOf<arguments::DeviceEpilogueIdentityGated> gated_epilogues[] = {
#define HALYARD_KERNEL(name) kernels::device_##name##_gated,
#include "kernels/epilogue.inc"
#undef HALYARD_KERNEL
};
static_assert(std::size(activations) == activation_count && std::size(gated_units) == activation_count);

}  // namespace

int64_t aligned_pitch(int64_t width, DType dtype) {
    const int64_t cell = cell_bytes / size_of(dtype);
    return (width + cell - 1) / cell * cell;
}

int64_t even_pitch(const View &view) {
    int64_t pitch = view.width(), covered = -1;
    for (int i = view.rank - 2; i >= 0; i--) {
        if (view.shape[i] == 1) {
            continue;
        }
        if (covered < 0) {
            pitch = view.strides[i];
        } else if (view.strides[i] != covered) {
            return -1;
        }
        covered = view.shape[i] * view.strides[i];
    }
    return pitch < view.width() ? -1 : pitch;
}

void Steps::cast(const View &x, const View &y) {
    cuda::cast(launches_.check(), context_, x, y);
}

void Steps::add(const View &a, const View &b, const View &y) {
    elementwise(launches_.check(), context_, {halyard::kernels::add, a, b, y});
}

void Steps::widen(const halyard_weights &w, char *memory) {
    const int64_t count = w.transposed ? w.columns : w.in_features, width = w.transposed ? w.in_features : w.columns;
    cast(rows(w.matrix, w.dtype, count, width, w.pitch), rows(memory, DType::f32, count, width, w.pitch));
}

const float *Steps::join_biases(const halyard_weights &w, const View &bias, const View &bias_up, float *memory) {
    if (!bias.data && !bias_up.data) {
        return w.has_column_bias ? w.column_bias : nullptr;
    }
    const auto vector = [&](const void *data, DType dtype, int64_t count) {
        return rows(data, dtype, 1, count, count);
    };
    cast(vector(w.zeros, DType::f32, w.columns), vector(memory, DType::f32, w.columns));
    if (bias.data) {
        cast(vector(bias.data, bias.dtype, w.out_features), vector(memory, DType::f32, w.out_features));
    }
    if (bias_up.data) {
        cast(vector(bias_up.data, bias_up.dtype, w.out_features),
             vector(memory + w.up_column, DType::f32, w.out_features));
    }
    if (w.has_column_bias) {
        const View sum = vector(memory, DType::f32, w.columns);
        add(sum, vector(w.column_bias, DType::f32, w.columns), sum);
    }
    return memory;
}

void Steps::multiply(const halyard_weights &w, const char *matrix, DType dtype, Matrix x, int64_t count, char *sums,
                     DType sums_dtype, int64_t sums_pitch, const void *bias, Matrix c) {
    DeviceProduct p;
    p.rows = count;
    p.columns = w.columns;
    p.depth = w.in_features;
    p.dtype = dtype;
    p.y_dtype = sums_dtype;
    p.x = x.data;
    p.x_pitch = count > 1 ? x.pitch : std::max(x.pitch, p.depth);
    p.w = matrix;
    p.w_pitch = w.pitch;
    p.w_transposed = w.transposed;
    p.y = sums;
    p.y_pitch = sums_pitch;
    p.c = c.data;
    p.c_pitch = c.pitch;
    p.beta = 1.0f;
    p.bias = bias;
    product(launches_, p, workspace_);
}

void Steps::finish(const halyard_weights &w, const Activation &unit, const EpilogueArgs &shifts, const char *sums,
                   DType dtype, int64_t sums_pitch, int64_t count, char *y, int64_t y_pitch) {
    const char *const up = sums + w.up_column * size_of(dtype);
    if (!shifts.row_scale && !shifts.row_mean && !shifts.bias) {
        const auto *const activation = activations[unit.activation];
        const auto *const gated_unit = gated_units[unit.activation];
        const View gate = rows(sums, dtype, count, w.out_features, sums_pitch);
        const View result = rows(y, dtype, count, w.out_features, y_pitch);
        if (w.gated && gated_unit) {
            const View of_up = rows(up, dtype, count, w.out_features, sums_pitch);
            return elementwise(launches_.check(), context_, {*gated_unit, gate, of_up, unit.beta, result});
        }
        if (!w.gated && activation) {
            return elementwise(launches_.check(), context_, {*activation, gate, unit.beta, result});
        }
    }
    constexpr int64_t max_grid_rows = 65535, addressable = int64_t{1} << 30;
    const int64_t most = std::max<int64_t>(1, std::min(max_grid_rows, addressable / std::max(sums_pitch, y_pitch)));
    for (int64_t row = 0; row < count; row += most) {
        launch_epilogue(w, unit, shifts, sums + row * sums_pitch * size_of(dtype), dtype, sums_pitch, row,
                        std::min(most, count - row), y + row * y_pitch * size_of(dtype), y_pitch);
    }
}

void Steps::launch_epilogue(const halyard_weights &w, const Activation &unit, const EpilogueArgs &shifts,
                            const char *sums, DType dtype, int64_t sums_pitch, int64_t first_row, int64_t count,
                            char *y, int64_t y_pitch) {
    const auto epilogue = epilogues[unit.activation];
    const auto gated_epilogue = gated_epilogues[unit.activation];
    const char *const up = sums + w.up_column * size_of(dtype);
    const int64_t cell = cell_bytes / size_of(dtype);
    const auto whole = [&](const char *data, int64_t pitch) {
        return reinterpret_cast<uintptr_t>(data) % cell_bytes == 0 && (count == 1 || pitch % cell == 0);
    };
    const bool by_words = w.out_features % cell == 0 && whole(sums, sums_pitch) && whole(up, sums_pitch) &&
                          whole(y, y_pitch) &&
                          host_function(w.gated ? gated_epilogue.kernel : epilogue.kernel, dtype, Access::words);
    const int64_t per_word = by_words ? 4 / size_of(dtype) : 1;
    const Access access = by_words ? Access::words : Access::elements;
    const int64_t columns = w.out_features / per_word;
    Buffer<2> of_gate, of_up, to;
    of_gate.set(sums, columns, count, sums_pitch / per_word);
    of_up.set(up, columns, count, sums_pitch / per_word);
    to.set(y, columns, count, y_pitch / per_word);
    const float *const sums_of_columns = shifts.row_mean ? w.column_sums : w.zeros;
    const float *const biases = shifts.bias ? shifts.bias : w.zeros;
    Buffer<1, float> column_sums, bias, column_sums_up, bias_up, scale, mean;
    column_sums.set(sums_of_columns, w.out_features);
    bias.set(biases, w.out_features);
    column_sums_up.set(sums_of_columns + w.up_column, w.out_features);
    bias_up.set(biases + w.up_column, w.out_features);
    scale.set_data(shifts.row_scale ? shifts.row_scale + first_row : w.one);
    scale.set_dim(0, count, shifts.row_scale ? 1 : 0);
    mean.set_data(shifts.row_mean ? shifts.row_mean + first_row : w.one + 1);
    mean.set_dim(0, count, shifts.row_mean ? 1 : 0);
    if (w.gated) {
        launches_.run(gated_epilogue, dtype, access,
                      {.sums = of_gate,
                       .column_sums = column_sums,
                       .bias = bias,
                       .row_scale = scale,
                       .row_mean = mean,
                       .beta = unit.beta,
                       .sums_up = of_up,
                       .column_sums_up = column_sums_up,
                       .bias_up = bias_up,
                       .y = to});
    } else {
        launches_.run(epilogue, dtype, access,
                      {.sums = of_gate,
                       .column_sums = column_sums,
                       .bias = bias,
                       .row_scale = scale,
                       .row_mean = mean,
                       .beta = unit.beta,
                       .y = to});
    }
}

}  // namespace halyard::cuda
