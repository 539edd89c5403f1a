// Linear layers and feed-forward networks on a device: products, and what Halide's kernels make of their sums.
//
// What a product can do itself, it does: a bias of y's type, the residual as its beta. For an activation or a gated
// unit the sums lie in scratch memory, in the type of x and the weights, and the unit overwrites them (the gate's half)
// or goes to y. Calls whose types differ are computed in f32 throughout, for which x and even the matrix are widened
// first: they are right, and slow. So are rows that do not lie at an even pitch, which are copied.
#include "cuda/layers.h"

#include <algorithm>

#include "cuda/buffer.h"
#include "cuda/operations.h"
#include "cuda/product.h"
#include "cuda/scratch.h"
#include "linear_check.h"

namespace halyard::cuda {
namespace {

// Intermediates of a feed-forward network take about this much: so many rows go through it at a time, at least some.
constexpr int64_t most_intermediate_bytes = int64_t{1} << 29, least_rows = 1024;

constexpr int64_t access_bytes = 16;

int64_t aligned_pitch(int64_t width, DType dtype) {
    const int64_t cell = access_bytes / size_of(dtype);
    return (width + cell - 1) / cell * cell;
}

/** Elements between rows, of whatever axes; negative if there is no such number, or rows share memory. */
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

/** A tensor of the shape of `like`, at an even pitch. */
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

/** Rows of a matrix as a tensor. */
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

Kernel cast_to(DType dtype) {
    return dtype == DType::f32 ? Kernel::cast_to_f32 : dtype == DType::f16 ? Kernel::cast_to_f16 : Kernel::cast_to_bf16;
}

/** Whether a value of one type is the same in another. */
bool exact(DType from, DType to) {
    return from == to || to == DType::f32;
}

struct Matrix {
    const char *data;
    int64_t pitch;
};

/** What an epilogue adds and multiplies beside the sums; null where there is nothing. */
struct Shifts {
    const float *row_scale = nullptr, *row_mean = nullptr;  // side by side
    const float *bias = nullptr;                            // by column of the matrix
};

struct Unit {
    halyard_activation activation;
    float beta;
};

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

/** The steps that linear layers and feed-forward networks have in common. */
class Steps {
public:
    Steps(Launches &launches, const halyard_context &context) : launches_(launches), context_(context) {}

    void set_workspace(void *workspace) { workspace_ = workspace; }

    /** y = x, of any types and strides, one shape. */
    void cast(const View &x, const View &y) {
        elementwise(launches_.check(), &context_, cast_to(y.dtype), {x}, nullptr, y, 1);
    }

    void add(const View &a, const View &b, const View &y) {
        elementwise(launches_.check(), &context_, Kernel::add, {a, b}, nullptr, y, 1);
    }

    View rows(const void *data, DType dtype, int64_t count, int64_t columns, int64_t pitch) const {
        return rows_view(launches_.ordinal(), data, dtype, count, columns, pitch);
    }

    /** The matrix of weights in f32, whose memory has widened_bytes(). */
    void widen(const halyard_weights &w, char *memory) {
        const int64_t count = w.transposed ? w.columns : w.in_features,
                      width = w.transposed ? w.in_features : w.columns;
        cast(rows(w.matrix, w.dtype, count, width, w.pitch), rows(memory, DType::f32, count, width, w.pitch));
    }

    static int64_t widened_bytes(const halyard_weights &w) {
        return (w.transposed ? w.columns : w.in_features) * w.pitch * static_cast<int64_t>(sizeof(float));
    }

    /** The f32 vector by column of what a call adds to the sums: the norm's bias and the call's. `memory`: columns. */
    const float *join_biases(const halyard_weights &w, const View &bias, const View &bias_up, float *memory) {
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

    /** sums = x w + bias + c. `matrix`: the weights' own or widened; c is null or has the type of the sums. */
    void multiply(const halyard_weights &w, const char *matrix, DType dtype, Matrix x, int64_t count, char *sums,
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

    /** y = unit(sums); y may be the gate's half of the sums. All are of one type. */
    void finish(const halyard_weights &w, const Unit &unit, const Shifts &shifts, const char *sums, DType dtype,
                int64_t sums_pitch, int64_t count, char *y, int64_t y_pitch) {
        const char *const up = sums + w.up_column * size_of(dtype);
        Kernel kernel;
        if (!shifts.row_scale && !shifts.row_mean && !shifts.bias && plain_kernel(unit, w.gated, kernel)) {
            const View gate = rows(sums, dtype, count, w.out_features, sums_pitch);
            const View result = rows(y, dtype, count, w.out_features, y_pitch);
            if (w.gated) {
                elementwise(launches_.check(), &context_, kernel,
                            {gate, rows(up, dtype, count, w.out_features, sums_pitch)}, &unit.beta, result, 1);
            } else {
                elementwise(launches_.check(), &context_, kernel, {gate}, &unit.beta, result, 1);
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

private:
    void launch_epilogue(const halyard_weights &w, const Unit &unit, const Shifts &shifts, const char *sums,
                         DType dtype, int64_t sums_pitch, int64_t first_row, int64_t count, char *y, int64_t y_pitch) {
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
        for (void *argument : {matrices[0].argument(), by_column[0].argument(), by_column[1].argument(),
                               scale.argument(), mean.argument(), static_cast<void *>(&beta)}) {
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

    Launches &launches_;
    const halyard_context &context_;
    void *workspace_ = nullptr;
};

/** Pieces of scratch memory: first their sizes, then, when there is memory, where they are. */
class Pieces {
public:
    /** The number of the piece; pieces of 0 bytes are null. */
    int add(int64_t bytes) {
        bytes_[count_] = bytes;
        total_ += DeviceScratch::piece_bytes(bytes);
        return count_++;
    }
    int64_t total() const { return total_; }

    void take(DeviceScratch &scratch) {
        for (int i = 0; i < count_; i++) {
            data_[i] = scratch.take(bytes_[i]);
        }
    }
    char *operator[](int piece) const { return data_[piece]; }

private:
    static constexpr int most = 16;

    int64_t bytes_[most];
    char *data_[most] = {};
    int count_ = 0;
    int64_t total_ = 0;
};

/** A row vector as a tensor of rows with one element. */
View one_wide(const View &vector, const View &x) {
    View view = vector;
    if (x.rank > 1) {
        view.shape[view.rank] = view.strides[view.rank] = 1;
        view.rank++;
    }
    return view;
}

/** The type that a product of x and weights is computed from. */
DType common(DType x, DType w) {
    return x == w ? x : DType::f32;
}

}  // namespace

void linear(Checker &check, const halyard_context &context, const LinearCall &call) {
    const halyard_weights &w = *call.weights;
    const int64_t rows = row_count(call.x);
    const DType dtype = common(call.x.dtype, w.dtype), y_dtype = call.y.dtype;
    const bool has_bias = call.bias.data || call.bias_up.data, has_residual = call.residual.data != nullptr;
    const bool shifted = call.row_scale.data || call.row_mean.data || w.has_column_bias;
    const bool has_unit = w.gated || call.activation != HALYARD_IDENTITY;

    // The product alone; or the unit's result is y; or all in f32, and then the residual and y's type.
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
    const bool copy_residual = has_residual && (!alone || even_pitch(call.residual) < 0);
    const int64_t residual_pitch = copy_residual  ? aligned_pitch(w.out_features, sums_dtype)
                                   : has_residual ? even_pitch(call.residual)
                                                  : 0;
    const int64_t sums_pitch = aligned_pitch(w.columns, sums_dtype), size = sizeof(float);

    Launches launches(check, context, call.y.device_id);
    Pieces pieces;
    const int x_copy = pieces.add(copy_x ? rows * x_pitch * size_of(dtype) : 0);
    const int y_copy = pieces.add(copy_y ? rows * y_pitch * size_of(y_dtype) : 0);
    const int w_copy = pieces.add(w.dtype != dtype ? Steps::widened_bytes(w) : 0);
    const int sums_piece = pieces.add(alone ? 0 : rows * sums_pitch * size_of(sums_dtype));
    const int residual_copy = pieces.add(copy_residual ? rows * residual_pitch * size_of(sums_dtype) : 0);
    const int bias_piece = pieces.add(has_bias ? w.columns * size : 0);
    const int scale_piece = pieces.add(call.row_scale.data ? rows * size : 0);
    const int mean_piece = pieces.add(call.row_mean.data ? rows * size : 0);
    const int workspace = pieces.add(product_workspace_bytes(launches));
    DeviceScratch scratch(launches, pieces.total());
    if (check.failed()) {
        return;
    }
    pieces.take(scratch);

    Steps steps(launches, context);
    steps.set_workspace(pieces[workspace]);
    if (copy_x) {
        steps.cast(call.x, tensor_like(call.x, pieces[x_copy], dtype, x_pitch));
    }
    if (w.dtype != dtype) {
        steps.widen(w, pieces[w_copy]);
    }
    if (copy_residual) {
        steps.cast(call.residual, tensor_like(call.residual, pieces[residual_copy], sums_dtype, residual_pitch));
    }
    const auto side_by_side = [&](const View &vector, int piece) -> const float * {
        if (!vector.data) {
            return nullptr;
        }
        const View given = one_wide(vector, call.x);
        steps.cast(given, tensor_like(given, pieces[piece], DType::f32, 1));
        return reinterpret_cast<const float *>(pieces[piece]);
    };
    Shifts shifts;
    shifts.row_scale = side_by_side(call.row_scale, scale_piece);
    shifts.row_mean = side_by_side(call.row_mean, mean_piece);
    const void *product_bias = nullptr;
    if (bias_in_product) {
        product_bias = call.bias.data;
        if (call.bias.dtype != sums_dtype) {
            steps.cast(steps.rows(call.bias.data, call.bias.dtype, 1, w.out_features, w.out_features),
                       steps.rows(pieces[bias_piece], sums_dtype, 1, w.out_features, w.out_features));
            product_bias = pieces[bias_piece];
        }
    } else if (bias_in_epilogue) {
        shifts.bias = steps.join_biases(w, call.bias, call.bias_up, reinterpret_cast<float *>(pieces[bias_piece]));
    }

    char *const y = copy_y ? pieces[y_copy] : call.y.data;
    const Matrix x = {copy_x ? pieces[x_copy] : call.x.data, x_pitch};
    const char *const matrix = w.dtype != dtype ? pieces[w_copy] : w.matrix;
    const Matrix none = {nullptr, 0},
                 residual = {copy_residual ? pieces[residual_copy] : call.residual.data, residual_pitch};
    if (alone) {
        steps.multiply(w, matrix, dtype, x, rows, y, y_dtype, y_pitch, product_bias, has_residual ? residual : none);
    } else {
        char *const sums = pieces[sums_piece];
        steps.multiply(w, matrix, dtype, x, rows, sums, sums_dtype, sums_pitch, product_bias, none);
        const Unit unit = {call.activation, call.beta};
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
        steps.cast(tensor_like(call.y, y, y_dtype, y_pitch), call.y);
    }
}

void ffn(Checker &check, const halyard_context &context, const FfnCall &call) {
    const halyard_ffn_options &o = call.options;
    const halyard_weights &up = *call.up, &down = *call.down;
    const int64_t rows = row_count(call.x), d_model = call.x.width(), d_ff = up.out_features, size = sizeof(float);
    const DType dtype = common(common(call.x.dtype, up.dtype), common(call.x.dtype, down.dtype)),
                y_dtype = call.y.dtype;
    const bool plain_norm = o.norm != HALYARD_NORM_NONE && !o.deferred_norm, deferred = o.deferred_norm != 0;
    const bool has_mean = deferred && o.norm == HALYARD_NORM_LAYER, residual = o.residual != 0;
    const bool has_bias = call.bias.data || call.bias_up.data, shifted = deferred || up.has_column_bias;
    const bool has_unit = up.gated || o.activation != HALYARD_IDENTITY;

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
    const bool copy_residual = residual && down_dtype != dtype;
    const bool widen_norm = plain_norm && call.x.dtype != dtype;
    const int64_t norm_pitch = aligned_pitch(d_model, dtype), sums_pitch = aligned_pitch(up.columns, sums_dtype);
    const bool narrow_hidden = sums_dtype != dtype;
    const int64_t hidden_pitch = narrow_hidden ? aligned_pitch(d_ff, dtype) : sums_pitch;
    const int64_t row_bytes = sums_pitch * size_of(sums_dtype) + norm_pitch * size_of(dtype);
    const int64_t block = std::min(rows, std::max(least_rows, most_intermediate_bytes / row_bytes));

    Launches launches(check, context, call.y.device_id);
    Pieces pieces;
    const int x_copy = pieces.add(copy_x ? rows * x_pitch * size_of(dtype) : 0);
    const int y_copy = pieces.add(copy_y ? rows * y_pitch * size_of(down_dtype) : 0);
    const int residual_copy = pieces.add(copy_residual ? rows * d_model * size : 0);
    const int up_copy = pieces.add(up.dtype != dtype ? Steps::widened_bytes(up) : 0);
    const int down_copy = pieces.add(down.dtype != dtype ? Steps::widened_bytes(down) : 0);
    const int normed = pieces.add(plain_norm ? block * norm_pitch * size_of(dtype) : 0);
    const int norm_weight = pieces.add(widen_norm && call.norm_weight.data ? d_model * size : 0);
    const int norm_bias = pieces.add(widen_norm && call.norm_bias.data ? d_model * size : 0);
    const int sums_piece = pieces.add(block * sums_pitch * size_of(sums_dtype));
    const int hidden_piece = pieces.add(narrow_hidden ? block * hidden_pitch * size_of(dtype) : 0);
    const int scale_piece = pieces.add(deferred ? rows * size : 0);
    const int mean_piece = pieces.add(has_mean ? rows * size : 0);
    const int bias_piece = pieces.add(has_bias ? up.columns * size : 0);
    const int bias_down_piece = pieces.add(bias_down && call.bias_down.dtype != down_dtype ? d_model * size : 0);
    const int workspace = pieces.add(product_workspace_bytes(launches));
    DeviceScratch scratch(launches, pieces.total());
    if (check.failed()) {
        return;
    }
    pieces.take(scratch);

    Steps steps(launches, context);
    steps.set_workspace(pieces[workspace]);
    View x = call.x;
    if (copy_x) {
        x = tensor_like(call.x, pieces[x_copy], dtype, x_pitch);
        steps.cast(call.x, x);
    }
    if (up.dtype != dtype) {
        steps.widen(up, pieces[up_copy]);
    }
    if (down.dtype != dtype) {
        steps.widen(down, pieces[down_copy]);
    }
    if (copy_residual) {
        steps.cast(call.x, tensor_like(call.x, pieces[residual_copy], down_dtype, d_model));
    }
    const auto vector = [&](const void *data, DType type, int64_t count) {
        return steps.rows(data, type, 1, count, count);
    };
    const auto converted = [&](const View &given, DType type, int piece) -> const char * {
        if (!given.data || given.dtype == type) {
            return given.data;
        }
        steps.cast(vector(given.data, given.dtype, given.width()), vector(pieces[piece], type, given.width()));
        return pieces[piece];
    };
    Shifts shifts;
    const void *product_bias = nullptr;
    if (bias_in_product) {
        product_bias = converted(call.bias, sums_dtype, bias_piece);
    } else {
        shifts.bias = steps.join_biases(up, call.bias, call.bias_up, reinterpret_cast<float *>(pieces[bias_piece]));
    }
    const char *const down_bias = converted(call.bias_down, down_dtype, bias_down_piece);

    View weight = call.norm_weight, bias = call.norm_bias;
    RmsNormScalars rms = call.rms;
    float eps = o.eps;
    if (widen_norm) {
        weight.data = const_cast<char *>(converted(call.norm_weight, dtype, norm_weight));
        bias.data = const_cast<char *>(converted(call.norm_bias, dtype, norm_bias));
        weight.dtype = bias.dtype = dtype;
    }
    if (deferred) {
        const auto vector_of_rows = [&](int piece) {
            View view = rows_view(launches.ordinal(), pieces[piece], DType::f32, rows, 1, 1);
            view.rank = 1;
            return view;
        };
        const View scale = vector_of_rows(scale_piece), mean = has_mean ? vector_of_rows(mean_piece) : View();
        row_statistics(check, &context, o.norm, &rms, &eps, steps.rows(x.data, dtype, rows, d_model, x_pitch), mean,
                       scale);
    }

    char *const y = copy_y ? pieces[y_copy] : call.y.data;
    const char *const added = copy_residual ? pieces[residual_copy] : residual ? x.data : nullptr;
    const int64_t added_pitch = copy_residual ? d_model : x_pitch;
    const Unit unit = {o.activation, o.beta};
    for (int64_t row = 0; row < rows; row += block) {
        const int64_t count = std::min(block, rows - row);
        Matrix input = {x.data + row * x_pitch * size_of(dtype), x_pitch};
        if (plain_norm) {
            const RowOperation operation =
                o.norm == HALYARD_NORM_RMS ? rms_norm(weight, &rms) : layer_norm(weight, bias, &eps);
            cuda::row(check, &context, operation, d_model, steps.rows(input.data, dtype, count, d_model, x_pitch),
                      steps.rows(pieces[normed], dtype, count, d_model, norm_pitch));
            input = {pieces[normed], norm_pitch};
        }
        char *const sums = pieces[sums_piece];
        const Matrix none = {nullptr, 0};
        steps.multiply(up, up.dtype != dtype ? pieces[up_copy] : up.matrix, dtype, input, count, sums, sums_dtype,
                       sums_pitch, product_bias, none);
        if (finishes) {
            shifts.row_scale = deferred ? reinterpret_cast<const float *>(pieces[scale_piece]) + row : nullptr;
            shifts.row_mean = has_mean ? reinterpret_cast<const float *>(pieces[mean_piece]) + row : nullptr;
            steps.finish(up, unit, shifts, sums, sums_dtype, sums_pitch, count, sums, sums_pitch);
        }
        Matrix hidden = {sums, sums_pitch};
        if (narrow_hidden) {
            steps.cast(steps.rows(sums, sums_dtype, count, d_ff, sums_pitch),
                       steps.rows(pieces[hidden_piece], dtype, count, d_ff, hidden_pitch));
            hidden = {pieces[hidden_piece], hidden_pitch};
        }
        const Matrix c = {added ? added + row * added_pitch * size_of(down_dtype) : nullptr, added_pitch};
        steps.multiply(down, down.dtype != dtype ? pieces[down_copy] : down.matrix, dtype, hidden, count,
                       y + row * y_pitch * size_of(down_dtype), down_dtype, y_pitch, down_bias, c);
    }
    if (copy_y) {
        steps.cast(tensor_like(call.y, y, down_dtype, y_pitch), call.y);
    }
}

}  // namespace halyard::cuda
