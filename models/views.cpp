#include "views.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "fail.h"

namespace halyard::models {

std::int64_t interleaved(std::int64_t row, std::int64_t rows, std::int64_t heads) noexcept {
    const std::int64_t width = rows / heads, within = row % width, half = width / 2;
    return row - within + 2 * (within % half) + within / half;
}

std::int64_t elements_of(const std::vector<std::int64_t> &shape) noexcept {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

ConstTensor Views::of(const halyard_context *context, const StoredTensor &stored, DLDataType dtype,
                      std::int64_t interleaved_heads) {
    const std::size_t element_bytes = dtype.bits / 8;
    const TensorInfo &info = *stored.tensor;
    if (stored.dtype && same(*stored.dtype, dtype) && interleaved_heads == 0 &&
        reinterpret_cast<std::uintptr_t>(info.data) % element_bytes == 0) {
        return SafeTensors::view(info);
    }
    Memory copy = allocate(info, static_cast<std::size_t>(elements_of(*stored.shape)) * element_bytes);
    auto *const to = static_cast<std::byte *>(copy.get());
    copies_.push_back(std::move(copy));
    DLTensor view{to, {kDLCPU, 0}, static_cast<int>(stored.shape->size()), dtype, nullptr, nullptr, 0};
    view.shape = const_cast<std::int64_t *>(stored.shape->data());
    if (stored.codes != nullptr) {
        Views tensors;
        dequantize(*tensors.codes(stored), Tensor(view), context);
    } else {
        convert_all(context, stored, dtype, interleaved_heads, to);
    }
    return view;
}

void Views::convert_all(const halyard_context *context, const StoredTensor &stored, DLDataType dtype,
                        std::int64_t interleaved_heads, std::byte *to) {
    const TensorInfo &info = *stored.tensor;
    const std::size_t element_bytes = dtype.bits / 8;
    const std::int64_t elements = elements_of(info.shape);
    if (interleaved_heads != 0 && info.shape.size() == 1) {
        // One block of a quantized vector holds elements that go to several places, so it is converted before they go.
        const Memory in_file_order = allocate(info, static_cast<std::size_t>(elements) * element_bytes);
        auto *const from = static_cast<std::byte *>(in_file_order.get());
        convert(context, stored, {info.data, info.bytes, 1, elements}, dtype, from);
        for (std::int64_t i = 0; i < elements; i++) {
            const std::int64_t place = interleaved(i, elements, interleaved_heads);
            std::memcpy(to + static_cast<std::size_t>(i) * element_bytes,
                        from + static_cast<std::size_t>(place) * element_bytes, element_bytes);
        }
        return;
    }
    const std::int64_t rows = elements > 0 && info.shape.size() > 1 ? info.shape.front() : 1;
    const std::int64_t width = elements / rows, row_bytes = info.bytes / rows;
    // Half a head's rows are every second one of a file that has heads interleaved.
    const bool is_interleaved = interleaved_heads != 0;
    const std::int64_t count = is_interleaved ? rows / (2 * interleaved_heads) : rows;
    for (std::int64_t row = 0; row < rows; row += count) {
        const std::int64_t first = is_interleaved ? interleaved(row, rows, interleaved_heads) : row;
        convert(context, stored,
                {info.data + first * row_bytes, is_interleaved ? 2 * row_bytes : row_bytes, count, width}, dtype,
                to + static_cast<std::size_t>(row * width) * element_bytes);
    }
}

const Codes *Views::codes(const StoredTensor &stored, std::int64_t interleaved_heads) {
    return &codes_.emplace_back(stored.codes != nullptr ? several_tensors(stored) : blocks(stored, interleaved_heads));
}

Codes Views::blocks(const StoredTensor &stored, std::int64_t interleaved_heads) {
    const TensorInfo &info = *stored.tensor;
    const std::int64_t rows = info.shape[0], row_bytes = info.bytes / rows;
    const std::byte *from = info.data;
    if (interleaved_heads != 0) {
        Memory copy = allocate(info, static_cast<std::size_t>(info.bytes));
        auto *const to = static_cast<std::byte *>(copy.get());
        for (std::int64_t row = 0; row < rows; row++) {
            std::memcpy(to + row * row_bytes, info.data + interleaved(row, rows, interleaved_heads) * row_bytes,
                        static_cast<std::size_t>(row_bytes));
        }
        from = to;
        copies_.push_back(std::move(copy));
    }
    Codes codes;
    codes.format = static_cast<CodeFormat>(*stored.blocks->codes);
    codes.in_features = info.shape[1];
    codes.out_features = rows;
    codes.matrix = Integers(reinterpret_cast<const std::uint8_t *>(from), {rows, row_bytes});
    return codes;
}

Codes Views::several_tensors(const StoredTensor &stored) {
    const QuantizationConfig &config = *stored.codes;
    const auto integers = [&](const TensorInfo &info) {
        const Extents shape{info.shape[0], info.shape[1]};
        if (config.format == CodeFormat::int8) {
            return Integers(reinterpret_cast<const std::int8_t *>(info.data), shape);
        }
        return Integers(reinterpret_cast<const std::int32_t *>(aligned(info, sizeof(std::int32_t))), shape);
    };
    Codes codes;
    codes.format = config.format;
    // Other formats say themselves how many there are.
    const bool has_choice = config.format != CodeFormat::int8 && config.format != CodeFormat::awq;
    codes.bits = has_choice ? config.bits : 0;
    codes.out_features = stored.shape->front();
    codes.in_features = stored.shape->back();
    codes.group = config.group;
    codes.matrix = integers(*stored.tensor);
    DLTensor scales = SafeTensors::view(*stored.scales);
    scales.data = const_cast<std::byte *>(aligned(*stored.scales, scales.dtype.bits / 8));  // it is only read
    codes.scales = ConstTensor(scales);
    if (stored.zeros != nullptr) {
        codes.zeros = integers(*stored.zeros);
    }
    if (stored.order != nullptr) {
        codes.g_idx = Integers(reinterpret_cast<const std::int32_t *>(aligned(*stored.order, sizeof(std::int32_t))),
                               {stored.order->shape[0]});
    }
    return codes;
}

const std::byte *Views::aligned(const TensorInfo &info, std::size_t element_bytes) {
    if (reinterpret_cast<std::uintptr_t>(info.data) % element_bytes == 0) {
        return info.data;
    }
    const auto bytes = static_cast<std::size_t>(info.bytes);
    Memory copy = allocate(info, bytes);
    std::memcpy(copy.get(), info.data, bytes);
    return static_cast<const std::byte *>(copies_.emplace_back(std::move(copy)).get());
}

Views::Memory Views::allocate(const TensorInfo &info, std::size_t bytes) {
    Memory memory(std::malloc(std::max<std::size_t>(bytes, 1)));
    if (memory == nullptr) {
        fail(HALYARD_OUT_OF_MEMORY, info.file, ": no memory for a copy of tensor ", in_quotes(info.name));
    }
    return memory;
}

void Views::convert(const halyard_context *context, const StoredTensor &stored, const Rows &from, DLDataType dtype,
                    std::byte *to) {
    constexpr DLDevice cpu{kDLCPU, 0};
    std::int64_t shape[] = {from.count, from.width};
    if (const BlockFormat *const format = stored.blocks) {
        std::int64_t blocks[] = {from.count, from.width / format->elements * format->bytes},
                     strides[] = {from.pitch, 1};
        // DLPack has no const; the matrix is only read.
        const DLTensor matrix{const_cast<std::byte *>(from.first), cpu, 2, {kDLUInt, 8, 1}, blocks, strides, 0};
        DLTensor target{to, cpu, 2, dtype, shape, nullptr, 0};
        halyard_codes codes{};
        codes.format = *format->codes;
        codes.in_features = from.width;
        codes.out_features = from.count;
        codes.matrix = &matrix;
        check(halyard_dequantize(context, &codes, &target));
        return;
    }
    // Row by row: a copy on the way, at an address that is a multiple of its elements, is never a whole tensor more.
    const DLDataType source_dtype = *stored.dtype;
    const auto stored_bytes = static_cast<std::size_t>(from.width) * (source_dtype.bits / 8),
               bytes = static_cast<std::size_t>(from.width) * (dtype.bits / 8);
    const Memory aligned = same(source_dtype, dtype) ? nullptr : allocate(*stored.tensor, stored_bytes);
    for (std::int64_t row = 0; row < from.count; row++, to += bytes) {
        std::memcpy(aligned ? aligned.get() : to, from.first + row * from.pitch, stored_bytes);
        if (aligned) {
            DLTensor source{aligned.get(), cpu, 1, source_dtype, &shape[1], nullptr, 0};
            DLTensor target{to, cpu, 1, dtype, &shape[1], nullptr, 0};
            check(halyard_cast(context, &source, &target));
        }
    }
}

}  // namespace halyard::models
