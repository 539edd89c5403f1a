// From checked tensors to launches: which elements each takes, and whether by 16 bytes or one by one.
#include "cuda/ops/operations.h"

#include <algorithm>

#include "core/row_iterator.h"
#include "cuda/launch.h"

namespace halyard::cuda {
namespace {

constexpr int max_arguments = 1 + max_tensors + 2 + max_scalars + 2;

// Kernels count elements in 32 bits and round up to whole blocks.
constexpr int64_t max_piece_rows = int64_t{1} << 30;
// The second axis of a grid ends here.
constexpr int64_t max_grid_rows = 65535;

constexpr int64_t cell_bytes = 16;

/** Elements that a kernel for this type takes at a time when it takes words. */
int64_t cell(DType dtype) {
    return cell_bytes / size_of(dtype);
}

bool aligned(const char *data) {
    return reinterpret_cast<uintptr_t>(data) % cell_bytes == 0;
}

/** A buffer argument in device memory, of one of the two kinds of access. */
class DeviceBuffer {
public:
    DeviceBuffer() {
        buffer_.dim = dims_;
        dims_[0] = {0, 0, 1, 0};
        dims_[1] = {0, 0, 0, 0};
    }
    DeviceBuffer(const DeviceBuffer &) = delete;
    DeviceBuffer &operator=(const DeviceBuffer &) = delete;

    /** Columns and pitch count elements. */
    void set(const void *data, DType dtype, Access access, int64_t columns, int64_t rows, int64_t pitch) {
        const int64_t per_word = access == Access::words ? 4 / size_of(dtype) : 1;
        buffer_.device = reinterpret_cast<uintptr_t>(data);
        dims_[0].extent = static_cast<int32_t>(columns / per_word);
        dims_[1].extent = static_cast<int32_t>(rows);
        dims_[1].stride = rows > 1 ? static_cast<int32_t>(pitch / per_word) : 0;
    }

    void *argument() { return &buffer_; }

private:
    halide_buffer_t buffer_ = {};
    halide_dimension_t dims_[2];
};

/** The threads that share a row: so many warps that each thread takes about four cells of 16 bytes, whatever the number
 *  of rows, because the order of the sums follows from it. */
int32_t warps_for(int64_t width, DType dtype) {
    constexpr int64_t cells_per_thread = 4, threads_per_warp = 32, most = 32;
    const int64_t cells = (width + cell(dtype) - 1) / cell(dtype);
    int64_t warps = 1;
    while (warps < most && warps * threads_per_warp * cells_per_thread < cells) {
        warps *= 2;
    }
    return static_cast<int32_t>(warps);
}

/** Rows in a block of which all are full: enough for 128 threads. */
int64_t rows_for(int32_t warps, int64_t rows) {
    constexpr int64_t warps_in_block = 4;
    // So few rows leave most multiprocessors idle: one launch of small blocks is better than a second launch.
    constexpr int64_t few_rows = 512;
    const int64_t fitting = std::max<int64_t>(1, warps_in_block / warps);
    return rows < few_rows && rows % fitting != 0 ? 1 : fitting;
}

/** What row kernels get: inputs, the operation's scalars and parameters, outputs. `statistics`: these hold an f32 for
 *  each row, see as_rows_of_one(). `variant`: the kernel's dtype where that is not the first tensor's. */
void run_rows(Checker &check, const halyard_context &context, const RowOperation &operation, Kernel kernel,
              int64_t reduced, std::initializer_list<const View *> views, int inputs, bool statistics = false,
              const DType *variant = nullptr) {
    const View &first = **views.begin();
    Rows rows(false);
    for (const View *view : views) {
        rows.add(*view);
    }
    rows.merge();
    const DType dtype = first.dtype;
    const int64_t width = first.width();
    const int64_t whole = cell(dtype);
    bool parameters_aligned = true;
    for (int i = 0; i < operation.parameter_count; i++) {
        parameters_aligned = parameters_aligned && aligned(operation.parameters[i]->data);
    }
    int32_t warps = warps_for(width, dtype);

    Launches launches(check, context, first.device_id);
    // Rows [begin, end) of a piece, in blocks of so many.
    const auto launch = [&](const Rows::Piece &piece, int64_t begin, int64_t end, int64_t block_rows) {
        if (begin == end) {
            return;
        }
        bool by_words = parameters_aligned && piece.columns % whole == 0 && reduced % whole == 0;
        for (int i = 0; i < rows.tensors(); i++) {
            by_words = by_words && ((statistics && i > 0) ||
                                    (aligned(piece.data[i]) && (piece.rows == 1 || piece.pitch[i] % whole == 0)));
        }
        const Access access = by_words ? Access::words : Access::elements;
        DeviceBuffer tensors[max_tensors], parameters[2];
        void *arguments[max_arguments];
        int n = 1;
        int32_t rows_per_block = static_cast<int32_t>(block_rows);
        const auto add_tensor = [&](int i) {
            const DType type = statistics && i > 0 ? DType::f32 : dtype;
            tensors[i].set(piece.data[i] + begin * piece.pitch[i] * size_of(type), type, access,
                           statistics && i > 0 ? 1 : piece.columns, end - begin, piece.pitch[i]);
            arguments[n++] = tensors[i].argument();
        };
        for (int i = 0; i < inputs; i++) {
            add_tensor(i);
        }
        for (int i = 0; i < operation.scalar_count; i++) {
            arguments[n++] = operation.scalars[i];
        }
        for (int i = 0; i < operation.parameter_count; i++) {
            parameters[i].set(operation.parameters[i]->data, dtype, access, piece.columns, 1, 0);
            arguments[n++] = parameters[i].argument();
        }
        arguments[n++] = &warps;
        arguments[n++] = &rows_per_block;
        for (int i = inputs; i < rows.tensors(); i++) {
            add_tensor(i);
        }
        launches.run(kernel, variant ? *variant : dtype, access, arguments);
    };
    rows.for_each_piece({0, rows.count(), 0, width}, max_piece_rows, width, [&](const Rows::Piece &piece) {
        const int64_t block_rows = rows_for(warps, piece.rows), whole_blocks = piece.rows / block_rows * block_rows;
        launch(piece, 0, whole_blocks, block_rows);
        launch(piece, whole_blocks, piece.rows, 1);
    });
}

/** A row vector as rows of one element. */
View as_rows_of_one(const View &vector, const View &x) {
    View view = vector;
    if (x.rank > 1) {
        view.rank++;
        view.shape[view.rank - 1] = view.strides[view.rank - 1] = 1;
    }
    return view;
}

/** The kernel that adds first. */
Kernel with_add(Kernel norm) {
    switch (norm) {
    case Kernel::rms_norm:
        return Kernel::add_rms_norm;
    case Kernel::rms_norm_weight:
        return Kernel::add_rms_norm_weight;
    case Kernel::layer_norm:
        return Kernel::add_layer_norm;
    case Kernel::layer_norm_weight:
        return Kernel::add_layer_norm_weight;
    case Kernel::layer_norm_bias:
        return Kernel::add_layer_norm_bias;
    default:
        return Kernel::add_layer_norm_weight_bias;
    }
}

}  // namespace

void elementwise(Checker &check, const halyard_context &context, const ElementwiseCall &call) {
    const int input_count = call.input_count, pair = call.pair;
    const float *const beta = call.beta;
    const View &y = call.y;
    Rows rows(true);
    for (int i = 0; i < input_count; i++) {
        rows.add(call.inputs[i], i == 0 ? pair : 1);
    }
    rows.add(y);
    rows.merge();
    const DType dtype = call.inputs[0].dtype;
    const int64_t whole = std::max(cell(dtype), cell(y.dtype));

    Launches launches(check, context, y.device_id);
    // Columns [begin, end) of a piece.
    const auto launch = [&](const Rows::Piece &piece, int64_t begin, int64_t end, Access access) {
        if (begin == end) {
            return;
        }
        DeviceBuffer buffers[max_tensors];
        void *arguments[max_arguments];
        int n = 1;
        for (int i = 0; i <= input_count; i++) {
            const DType type = i < input_count ? dtype : y.dtype;
            const int64_t per_column = i == 0 ? pair : 1;
            if (i == input_count && beta) {
                arguments[n++] = const_cast<float *>(beta);
            }
            buffers[i].set(piece.data[i] + begin * per_column * size_of(type), type, access, (end - begin) * per_column,
                           piece.rows, piece.pitch[i]);
            arguments[n++] = buffers[i].argument();
        }
        launches.run(call.kernel, dtype, access, arguments);
    };
    rows.for_each_piece({0, rows.count(), 0, rows.width()}, max_grid_rows, max_columns, [&](const Rows::Piece &piece) {
        bool by_words = piece.rows == 1 || piece.columns % whole == 0;
        for (int i = 0; i <= input_count; i++) {
            by_words = by_words && aligned(piece.data[i]) && (piece.rows == 1 || piece.pitch[i] % whole == 0);
        }
        const int64_t in_words = by_words ? piece.columns / whole * whole : 0;
        launch(piece, 0, in_words, Access::words);
        launch(piece, in_words, piece.columns, Access::elements);
    });
}

void norm(Checker &check, const halyard_context &context, const NormCall &call) {
    RmsNormScalars scalars = call.scalars;
    const RowOperation operation = row_operation(call, scalars);
    if (call.residual.data) {
        run_rows(check, context, operation, with_add(operation.kernel), scalars.moment_width,
                 {&call.x, &call.residual, &call.residual_out, &call.y}, 2);
    } else {
        run_rows(check, context, operation, operation.kernel, scalars.moment_width, {&call.x, &call.y}, 1);
    }
}

void softmax(Checker &check, const halyard_context &context, const SoftmaxCall &call) {
    float scale = call.scale;
    RowOperation operation;
    operation.scalar(&scale);
    run_rows(check, context, operation, Kernel::softmax, call.x.width(), {&call.x, &call.y}, 1);
}

void norm_statistics(Checker &check, const halyard_context &context, const NormStatisticsCall &call) {
    RmsNormScalars scalars = call.scalars;
    RowOperation operation;
    operation.scalar(&scalars.eps);
    const View scales = as_rows_of_one(call.y, call.x), means = as_rows_of_one(call.mean, call.x);
    if (call.norm == HALYARD_NORM_LAYER) {
        run_rows(check, context, operation, Kernel::layer_norm_scale, call.x.width(), {&call.x, &scales, &means}, 1,
                 true);
    } else {
        operation.scalar(&scalars.eps_outside_root);
        run_rows(check, context, operation, Kernel::rms_norm_scale, call.x.width(), {&call.x, &scales}, 1, true);
    }
}

void attention_block_sums(Checker &check, const halyard_context &context, DType dtype, float *score_scale,
                          const View &scores, const View &top, const View &sum) {
    RowOperation operation;
    operation.scalar(score_scale);
    const View tops = as_rows_of_one(top, scores), sums = as_rows_of_one(sum, scores);
    run_rows(check, context, operation, Kernel::attention_block_sums, scores.width(), {&scores, &tops, &sums}, 1, true,
             &dtype);
}

}  // namespace halyard::cuda
