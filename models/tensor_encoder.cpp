// Rows are encoded and decoded again in parallel, each by itself: the blocks do not depend on the number of threads.
#include "tensor_encoder.h"

#include <cstring>

#include "block_encoders.h"
#include "floating_point.h"
#include "views.h"

namespace halyard::models {

namespace {

/// Rows of a task.
class Rows {
public:
    Rows(const EncodingTask &task, const float *values, std::byte *blocks)
        : task_(task), values_(values), blocks_(blocks), format_(*task.tensor.format) {
        const std::vector<std::int64_t> &shape = task.tensor.shape;
        // Each element of a vector in another order is a row.
        const bool is_vector = shape.size() == 1;
        width_ = !is_vector ? shape.back() : task.interleaved_heads != 0 ? 1 : shape.front();
        count_ = elements_of(shape) / width_;
    }

    std::int64_t count() const { return count_; }

    EncodingErrors encode(std::int64_t first, std::int64_t end) const {
        const DefaultFloatingPoint floating_point;
        Context context;
        context.set_num_threads(1);
        std::vector<float> row(static_cast<std::size_t>(width_)), decoded(row.size());
        EncodingErrors errors;
        for (std::int64_t number = first; number < end; number++) {
            read(number, row.data());
            check_finite(row, task_.stored, format_.name);
            std::byte *const to = blocks_ + place(number) * (width_ / format_.elements * format_.bytes);
            encode_blocks(format_, row.data(), width_, to);
            decode(context, to, decoded);
            check_decoded(decoded, task_.stored, format_.name);
            errors.add(row, decoded);
        }
        return errors;
    }

private:
    std::int64_t place(std::int64_t row) const {
        return task_.interleaved_heads == 0 ? row : interleaved(row, count_, task_.interleaved_heads);
    }
    void read(std::int64_t row, float *to) const {
        for (std::int64_t i = 0; i < width_; i++) {
            to[i] = values_[task_.is_transposed ? i * count_ + row : row * width_ + i] + task_.added;
        }
    }
    void decode(const Context &context, const std::byte *blocks, std::vector<float> &values) const {
        const std::int64_t bytes = width_ / format_.elements * format_.bytes;
        if (format_.codes) {
            Codes codes;
            codes.format = static_cast<CodeFormat>(*format_.codes);
            codes.in_features = width_;
            codes.out_features = 1;
            codes.matrix = Integers(reinterpret_cast<const std::uint8_t *>(blocks), {1, bytes});
            dequantize(codes, {values, {1, width_}}, context);
        } else if (format_.bytes == sizeof(float)) {
            std::memcpy(values.data(), blocks, static_cast<std::size_t>(bytes));
        } else {
            const auto *const halves = reinterpret_cast<const f16 *>(blocks);
            const auto *const bfloats = reinterpret_cast<const bf16 *>(blocks);
            const Extents shape{width_};
            cast(format_.name == "F16" ? ConstTensor(halves, shape) : ConstTensor(bfloats, shape), values, context);
        }
    }

    const EncodingTask &task_;
    const float *const values_;
    std::byte *const blocks_;
    const BlockFormat &format_;
    std::int64_t width_, count_;
};

}  // namespace

bool EncodingTask::is_copied() const {
    return stored.codes == nullptr && stored.format == tensor.format->name && interleaved_heads == 0 &&
           stored_heads == 0 && !is_transposed && added == 0;
}

EncodingErrors encode_tensor(const EncodingTask &task, int threads, std::vector<std::byte> &blocks) {
    Context context;
    context.set_num_threads(threads);
    blocks.resize(static_cast<std::size_t>(task.tensor.bytes()));
    Views views;
    const ConstTensor values = views.of(context, task.stored, element<float>::dtype, task.stored_heads);
    const DLTensor &view = *values.get();
    const auto *const first = reinterpret_cast<const float *>(static_cast<const char *>(view.data) + view.byte_offset);
    return encode_in_parallel(Rows(task, first, blocks.data()), threads);
}

}  // namespace halyard::models
