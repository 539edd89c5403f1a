// Casts, products and the kernels of what is made of their sums, as layers put them together.
#include "cuda/linear/layer_steps.h"

#include <algorithm>

#include "cuda/buffer.h"
#include "cuda/linear/gemm.h"
#include "cuda/ops/operations.h"

namespace halyard::cuda {
namespace {

constexpr int64_t access_bytes = 16;

/** The kernel of a unit without shifts; false if there is none. */
bool plain_kernel(const Unit &unit, bool gated, Kernel &kernel) {
    if (!gated) {
        constexpr Kernel kernels[] = {Kernel::relu,         Kernel::gelu, Kernel::gelu_tanh,
                                      Kernel::gelu_sigmoid, Kernel::silu, Kernel::swish,
                                      Kernel::sigmoid,      Kernel::tanh, Kernel::exp};
        static_assert(sizeof(kernels) / sizeof(kernels[0]) == HALYARD_EXP, "one for each activation but the identity");
        if (unit.activation == HALYARD_IDENTITY) {
            return false;
        }
        kernel = kernels[unit.activation - HALYARD_RELU];
        return true;
    }
    switch (unit.activation) {
    case HALYARD_IDENTITY:
        kernel = Kernel::bilinear;
        return true;
    case HALYARD_RELU:
        kernel = Kernel::reglu;
        return true;
    case HALYARD_GELU:
        kernel = Kernel::geglu;
        return true;
    case HALYARD_GELU_TANH:
        kernel = Kernel::geglu_tanh;
        return true;
    case HALYARD_SILU:
        kernel = Kernel::swiglu_beta1;
        return true;
    case HALYARD_SWISH:
        kernel = Kernel::swiglu;
        return true;
    case HALYARD_SIGMOID:
        kernel = Kernel::glu;
        return true;
    default:
        return false;
    }
}

Kernel epilogue_kernel(halyard_activation activation, bool gated) {
    constexpr Kernel kernels[][2] = {
        {Kernel::device_epilogue_identity, Kernel::device_epilogue_identity_gated},
        {Kernel::device_epilogue_relu, Kernel::device_epilogue_relu_gated},
        {Kernel::device_epilogue_gelu, Kernel::device_epilogue_gelu_gated},
        {Kernel::device_epilogue_gelu_tanh, Kernel::device_epilogue_gelu_tanh_gated},
        {Kernel::device_epilogue_gelu_sigmoid, Kernel::device_epilogue_gelu_sigmoid_gated},
        {Kernel::device_epilogue_silu, Kernel::device_epilogue_silu_gated},
        {Kernel::device_epilogue_swish, Kernel::device_epilogue_swish_gated},
        {Kernel::device_epilogue_sigmoid, Kernel::device_epilogue_sigmoid_gated},
        {Kernel::device_epilogue_tanh, Kernel::device_epilogue_tanh_gated},
        {Kernel::device_epilogue_exp, Kernel::device_epilogue_exp_gated},
    };
    static_assert(sizeof(kernels) / sizeof(kernels[0]) == HALYARD_EXP + 1, "one for each activation");
    return kernels[activation][gated];
}

}  // namespace

int64_t aligned_pitch(int64_t width, DType dtype) {
    const int64_t cell = access_bytes / size_of(dtype);
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

View tensor_like(const View &like, void *data, DType dtype, int64_t pitch) {
    View view = like;
    view.data = static_cast<char *>(data);
    view.dtype = dtype;
    int64_t stride = pitch;
    for (int i = view.rank - 2; i >= 0; i--) {
        view.strides[i] = stride;
        stride *= view.shape[i];
    }
    return view;
}

View rows_view(int device, const void *data, DType dtype, int64_t rows, int64_t columns, int64_t pitch) {
    View view;
    view.data = static_cast<char *>(const_cast<void *>(data));
    view.dtype = dtype;
    view.on_cuda = true;
    view.device_id = device;
    view.rank = 2;
    view.shape[0] = rows;
    view.shape[1] = columns;
    view.strides[0] = pitch;
    view.strides[1] = 1;
    view.elements = rows * columns;
    return view;
}

void Steps::cast(const View &x, const View &y) {
    cuda::cast(launches_.check(), context_, x, y);
}

void Steps::add(const View &a, const View &b, const View &y) {
    elementwise(launches_.check(), context_, {Kernel::add, {a, b}, 2, y});
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

void Steps::finish(const halyard_weights &w, const Unit &unit, const Shifts &shifts, const char *sums, DType dtype,
                   int64_t sums_pitch, int64_t count, char *y, int64_t y_pitch) {
    const char *const up = sums + w.up_column * size_of(dtype);
    Kernel kernel;
    if (!shifts.row_scale && !shifts.row_mean && !shifts.bias && plain_kernel(unit, w.gated, kernel)) {
        const View gate = rows(sums, dtype, count, w.out_features, sums_pitch);
        const View result = rows(y, dtype, count, w.out_features, y_pitch);
        if (w.gated) {
            elementwise(launches_.check(), context_,
                        {kernel, {gate, rows(up, dtype, count, w.out_features, sums_pitch)}, 2, result, &unit.beta});
        } else {
            elementwise(launches_.check(), context_, {kernel, {gate}, 1, result, &unit.beta});
        }
        return;
    }
    constexpr int64_t max_grid_rows = 65535, addressable = int64_t{1} << 30;
    const int64_t most = std::max<int64_t>(1, std::min(max_grid_rows, addressable / std::max(sums_pitch, y_pitch)));
    for (int64_t row = 0; row < count; row += most) {
        launch_epilogue(w, unit, shifts, sums + row * sums_pitch * size_of(dtype), dtype, sums_pitch, row,
                        std::min(most, count - row), y + row * y_pitch * size_of(dtype), y_pitch);
    }
}

void Steps::launch_epilogue(const halyard_weights &w, const Unit &unit, const Shifts &shifts, const char *sums,
                            DType dtype, int64_t sums_pitch, int64_t first_row, int64_t count, char *y,
                            int64_t y_pitch) {
    const Kernel kernel = epilogue_kernel(unit.activation, w.gated);
    const char *const up = sums + w.up_column * size_of(dtype);
    const int64_t cell = access_bytes / size_of(dtype);
    const auto whole = [&](const char *data, int64_t pitch) {
        return reinterpret_cast<uintptr_t>(data) % access_bytes == 0 && (count == 1 || pitch % cell == 0);
    };
    const bool by_words = w.out_features % cell == 0 && whole(sums, sums_pitch) && whole(up, sums_pitch) &&
                          whole(y, y_pitch) && host_function(kernel, dtype, Access::words);
    const int64_t per_word = by_words ? 4 / size_of(dtype) : 1;
    DeviceBufferOf<2> matrices[3];
    const char *const data[] = {sums, up, y};
    for (int i = 0; i < 3; i++) {
        matrices[i].set_data(data[i]);
        matrices[i].set_dim(0, w.out_features / per_word, 1);
        matrices[i].set_dim(1, count, (i < 2 ? sums_pitch : y_pitch) / per_word);
    }
    const float *const column_sums = shifts.row_mean ? w.column_sums : w.zeros;
    const float *const bias = shifts.bias ? shifts.bias : w.zeros;
    DeviceBufferOf<1> by_column[4], scale, mean;
    const float *const vectors[] = {column_sums, bias, column_sums + w.up_column, bias + w.up_column};
    for (int i = 0; i < 4; i++) {
        by_column[i].set_data(vectors[i]);
        by_column[i].set_dim(0, w.out_features, 1);
    }
    scale.set_data(shifts.row_scale ? shifts.row_scale + first_row : w.one);
    scale.set_dim(0, count, shifts.row_scale ? 1 : 0);
    mean.set_data(shifts.row_mean ? shifts.row_mean + first_row : w.one + 1);
    mean.set_dim(0, count, shifts.row_mean ? 1 : 0);
    float beta = unit.beta;
    void *arguments[16];
    int n = 1;
    for (void *argument : {matrices[0].argument(), by_column[0].argument(), by_column[1].argument(), scale.argument(),
                           mean.argument(), static_cast<void *>(&beta)}) {
        arguments[n++] = argument;
    }
    if (w.gated) {
        for (void *argument : {matrices[1].argument(), by_column[2].argument(), by_column[3].argument()}) {
            arguments[n++] = argument;
        }
    }
    arguments[n++] = matrices[2].argument();
    launches_.run(kernel, dtype, by_words ? Access::words : Access::elements, arguments);
}

}  // namespace halyard::cuda
