// Packing for devices: copies, the folding of a norm by a kernel, and sums of columns as GEMMs: that of a norm's bias in f32
// beside a matrix of 16 bits, in f32.
#include "cuda/linear/weights.h"

#include <algorithm>
#include <cstdlib>

#include "core/context.h"
#include "core/view.h"
#include "core/workspace.h"
#include "cuda/backend.h"
#include "cuda/kernel_call.h"
#include "cuda/linear/gemm.h"
#include "cuda/ops/operations.h"
#include "cuda/transfers.h"

namespace halyard::cuda {
namespace {

constexpr int64_t row_alignment = 16, piece_alignment = 256;

constexpr int64_t rounded_up(int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

/** Work on the device of the weights, in the context's stream. */
class Packing {
public:
    Packing(Launches &launches, const halyard_context &context, const PackSources &sources, const DeviceMatrix &matrix,
            char *block)
        : launches_(launches), context_(context), check_(launches.check()), sources_(sources), m_(matrix),
          block_(block), size_(size_of(sources.weight.dtype)) {}

    void run() {
        const int64_t inputs = sources_.form.in_features, ones_bytes = rounded_up(inputs * size_, 4);
        const View &norm_weight = sources_.norm_weight, &norm_bias = sources_.norm_bias;
        const bool widens = norm_bias.data && norm_bias.dtype != sources_.weight.dtype;
        Workspace workspace(context_, device());
        const auto one_for_each = workspace.book(ones_bytes);
        const auto weight_copy = workspace.book<float>(norm_weight.data ? inputs : 0);
        const auto bias_copy = workspace.book(norm_bias.data ? inputs * size_of(norm_bias.dtype) : 0);
        const auto wide_matrix = workspace.book<float>(widens ? m_.rows : 0, m_.pitch);
        const auto product_memory = workspace.book(product_workspace_bytes(launches_));
        if (!workspace.allocate(check_)) {
            return;
        }
        char *const ones = workspace[one_for_each];
        workspace_ = workspace[product_memory];
        fill_words(launches_, block_, 0u, m_.bytes);
        constexpr float one = 1.0f;
        copy(block_ + 3 * m_.vector_bytes, 0, &one, 0, sizeof(one), 1, false);
        place(sources_.weight, 0);
        if (sources_.form.gated) {
            place(sources_.up, m_.up_column);
        }
        if (norm_bias.data) {
            const View vector = brought(norm_bias, workspace[bias_copy], norm_bias.dtype);
            times_matrix(vector.data, widens ? widened(workspace[wide_matrix]) : stored(), block_ + m_.vector_bytes);
        }
        if (norm_weight.data) {
            fold(brought(norm_weight, workspace[weight_copy], DType::f32));
        }
        constexpr unsigned pairs_of_one[] = {0x3f800000u, 0x3c003c00u, 0x3f803f80u};  // by dtype
        fill_words(launches_, ones, pairs_of_one[static_cast<int>(sources_.weight.dtype)], ones_bytes);
        times_matrix(ones, stored(), block_);
        // The sources may be gone when this has returned, and the memory may be used in another stream.
        wait(launches_, "packing weights");
    }

private:
    halyard::Device device() const { return {true, launches_.ordinal()}; }
    char *matrix() const { return block_ + m_.matrix_offset; }

    /** The matrix as it is packed. */
    View stored() const {
        const int64_t width = m_.transposed ? sources_.form.in_features : m_.columns;
        return view_of(matrix(), sources_.weight.dtype, device(), {m_.rows, width}, {m_.pitch, 1});
    }

    /** Its values in f32. */
    View widened(float *memory) {
        const View given = stored(), result = view_like(given, memory, DType::f32, m_.pitch);
        cast(check_, context_, given, result);
        return result;
    }

    /** A norm's vector on the device. */
    View brought(const View &vector, void *memory, DType dtype) {
        View result = view_of(memory, dtype, device(), {sources_.form.in_features}, {1});
        const ParamSource source(&result, vector, sources_.form.in_features);
        convert_vectors(check_, context_, launches_.ordinal(), &source, 1);
        return result;
    }

    /** Pitches in bytes. */
    void copy(char *target, int64_t target_pitch, const void *source, int64_t source_pitch, int64_t width, int64_t rows,
              bool from_device) {
        copy_rows(launches_, {target, true, target_pitch}, {source, from_device, source_pitch}, width, rows,
                  "copying weights to the device");
    }

    /** A matrix of the sources, whose first column is to be `column`. */
    void place(const View &source, int64_t column) {
        char *const target = matrix() + (m_.transposed ? column * m_.pitch : column) * size_;
        if (source.shape[0] > 1 && source.strides[0] < source.width()) {
            // Rows that share memory: a copy of rows with such a pitch is refused.
            for (int64_t row = 0; row < source.shape[0]; row++) {
                copy(target + row * m_.pitch * size_, 0, source.data + row * source.strides[0] * size_, 0,
                     source.width() * size_, 1, source.on_cuda);
            }
            return;
        }
        copy(target, m_.pitch * size_, source.data, source.strides[0] * size_, source.width() * size_, source.shape[0],
             source.on_cuda);
    }

    /** result [columns] in f32 = vector [in_features], in the type of `matrix`, times that. */
    void times_matrix(const char *vector, const View &matrix, char *result) {
        DeviceProduct p;
        p.rows = 1;
        p.columns = m_.columns;
        p.depth = sources_.form.in_features;
        p.dtype = matrix.dtype;
        p.y_dtype = DType::f32;
        p.x = vector;
        p.x_pitch = p.depth;
        p.w = matrix.data;
        p.w_pitch = m_.pitch;
        p.w_transposed = m_.transposed;
        p.y = result;
        p.y_pitch = m_.columns;
        product(launches_, p, workspace_);
    }

    /** Multiplies the inputs of the matrix by the norm's weight, which is f32, in place. */
    void fold(const View &norm_weight) {
        Buffer<2> w;
        Buffer<1, float> factor;
        const auto *const factors = reinterpret_cast<const float *>(norm_weight.data);
        factor.set(factors, sources_.form.in_features);
        const float offset = sources_.unit_offset ? 1.0f : 0.0f;
        const int64_t width = m_.transposed ? sources_.form.in_features : m_.columns;
        constexpr int64_t max_grid_rows = 65535, addressable = int64_t{1} << 30;
        const int64_t most = std::max<int64_t>(1, std::min(max_grid_rows, addressable / m_.pitch));
        for (int64_t row = 0; row < m_.rows; row += most) {
            const int64_t rows = std::min(most, m_.rows - row);
            w.set(matrix() + row * m_.pitch * size_, width, rows, m_.pitch);
            if (!m_.transposed) {
                factor.set(factors + row, rows);
            }
            launches_.run(m_.transposed ? kernels::device_fold_columns : kernels::device_fold_rows,
                          sources_.weight.dtype, Access::elements,
                          {.w = w, .factor = factor, .offset = offset, .y = w});
        }
    }

    Launches &launches_;
    const halyard_context &context_;
    Checker &check_;
    const PackSources &sources_;
    const DeviceMatrix &m_;
    char *const block_;
    const int64_t size_;
    void *workspace_ = nullptr;
};

}  // namespace

DeviceMatrix::DeviceMatrix(const PackSources &sources) {
    const int64_t size = size_of(sources.weight.dtype), aligned = row_alignment / size;
    transposed = sources.layout == HALYARD_WEIGHT_OUT_IN;
    up_column = sources.form.gated ? rounded_up(sources.form.out_features, aligned) : 0;
    columns = up_column + sources.form.out_features;
    rows = transposed ? columns : sources.form.in_features;
    pitch = rounded_up(transposed ? sources.form.in_features : columns, aligned);
    vector_bytes = rounded_up(columns * static_cast<int64_t>(sizeof(float)), piece_alignment);
    matrix_offset = 3 * vector_bytes + piece_alignment;
    bytes = matrix_offset + rounded_up(rows * pitch * size, piece_alignment);
}

int64_t packed_bytes(const PackSources &sources) {
    return DeviceMatrix(sources).bytes;
}

void pack(Checker &check, const halyard_context &context, const PackSources &sources, void *memory, int64_t bytes,
          halyard_weights **weights) {
    const DeviceMatrix matrix(sources);
    if (memory && reinterpret_cast<uintptr_t>(memory) % piece_alignment != 0) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "memory is misaligned: the address must be a multiple of %d for weights on a device",
                   static_cast<int>(piece_alignment));
    }
    if (memory && bytes < matrix.bytes) {
        check.fail(HALYARD_INVALID_ARGUMENT, "bytes is %lld, but the packed weights need %lld",
                   static_cast<long long>(bytes), static_cast<long long>(matrix.bytes));
    }
    if (memory && sources.weight.on_cuda) {
        const View target = memory_view("memory", memory, matrix.bytes);
        for (const View *source : {&sources.weight, &sources.up, &sources.norm_weight, &sources.norm_bias}) {
            check.no_overlap(target, *source, false);
        }
    }
    Launches launches(check, context, sources.device_id);
    halyard_weights *const handle = check.failed() ? nullptr : new_handle();
    if (!check.failed() && !handle) {
        check.fail(HALYARD_OUT_OF_MEMORY, "no memory for a handle");
    }
    if (check.failed()) {
        return;
    }
    char *block = static_cast<char *>(memory);
    if (!block) {
        DevicePointer pointer = 0;
        succeeded(check, *launches.driver(),
                  launches.driver()->memory_allocate(&pointer, static_cast<size_t>(matrix.bytes)),
                  "allocating memory for packed weights on the device");
        block = reinterpret_cast<char *>(pointer);
    }
    if (!check.failed()) {
        Packing(launches, context, sources, matrix, block).run();
    }
    handle->dtype = sources.weight.dtype;
    handle->gated = sources.form.gated;
    handle->norm_folded = sources.form.norm_folded;
    handle->in_features = sources.form.in_features;
    handle->out_features = sources.form.out_features;
    handle->on_cuda = true;
    handle->device_id = sources.device_id;
    handle->transposed = matrix.transposed;
    handle->has_column_bias = sources.norm_bias.data != nullptr;
    handle->pitch = matrix.pitch;
    handle->up_column = matrix.up_column;
    handle->columns = matrix.columns;
    handle->column_sums = reinterpret_cast<const float *>(block);
    handle->column_bias = reinterpret_cast<const float *>(block + matrix.vector_bytes);
    handle->zeros = reinterpret_cast<const float *>(block + 2 * matrix.vector_bytes);
    handle->one = reinterpret_cast<const float *>(block + 3 * matrix.vector_bytes);
    handle->matrix = block + matrix.matrix_offset;
    handle->block = block;
    handle->bytes = matrix.bytes;
    handle->owner = memory ? halyard_weights::Owner::caller : halyard_weights::Owner::device;
    if (check.failed()) {
        if (block && !memory) {
            launches.driver()->memory_free(reinterpret_cast<DevicePointer>(block));
        }
        free(handle);
        return;
    }
    *weights = handle;
}

void free_weights(const halyard_weights &weights) {
    if (weights.owner != halyard_weights::Owner::device) {
        return;
    }
    Checker check("halyard_weights_destroy");
    const Launches launches(check, context_or_default(nullptr), weights.device_id);
    if (!check.failed()) {
        launches.driver()->memory_free(reinterpret_cast<DevicePointer>(weights.block));
    }
}

}  // namespace halyard::cuda
