#include "views.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fail.h"
#include "gguf_formats.h"

namespace halyard::models {

namespace {

/// Null if the tensor is not quantized.
const BlockFormat *quantized_format(const TensorInfo &info) {
    const BlockFormat *const format = block_format(info.dtype);
    return format != nullptr && format->codes ? format : nullptr;
}

/// Where row `row` of so many lies in a file that has heads interleaved.
std::int64_t interleaved(std::int64_t row, std::int64_t rows, std::int64_t heads) {
    const std::int64_t width = rows / heads, within = row % width, half = width / 2;
    return row - within + 2 * (within % half) + within / half;
}

}  // namespace

std::optional<DLDataType> plain_dtype(const TensorInfo &info) {
    if (quantized_format(info) != nullptr) {
        return std::nullopt;
    }
    return SafeTensors::view(info).dtype;
}

ConstTensor Views::of(const halyard_context *context, const TensorInfo &info, DLDataType dtype,
                      std::int64_t interleaved_heads) {
    const std::size_t element_bytes = dtype.bits / 8;
    const std::optional<DLDataType> stored = plain_dtype(info);
    if (stored && same(*stored, dtype) && interleaved_heads == 0 &&
        reinterpret_cast<std::uintptr_t>(info.data) % element_bytes == 0) {
        return SafeTensors::view(info);
    }
    std::int64_t elements = 1;
    for (const std::int64_t extent : info.shape) {
        elements *= extent;
    }
    Memory copy = allocate(info, static_cast<std::size_t>(elements) * element_bytes);
    auto *const to = static_cast<std::byte *>(copy.get());
    if (interleaved_heads != 0 && info.shape.size() == 1) {
        // One block of a quantized vector holds elements that go to several places, so it is converted before they go.
        const Memory in_file_order = allocate(info, static_cast<std::size_t>(elements) * element_bytes);
        const auto *const from = static_cast<const std::byte *>(in_file_order.get());
        convert(context, info, {info.data, info.bytes, 1, elements}, dtype,
                static_cast<std::byte *>(in_file_order.get()));
        for (std::int64_t i = 0; i < elements; i++) {
            const std::int64_t place = interleaved(i, elements, interleaved_heads);
            std::memcpy(to + static_cast<std::size_t>(i) * element_bytes,
                        from + static_cast<std::size_t>(place) * element_bytes, element_bytes);
        }
    } else {
        const std::int64_t rows = elements > 0 && info.shape.size() > 1 ? info.shape.front() : 1;
        const std::int64_t width = elements / rows, row_bytes = info.bytes / rows;
        // Half a head's rows are every second one of a file that has heads interleaved.
        const bool is_interleaved = interleaved_heads != 0;
        const std::int64_t count = is_interleaved ? rows / (2 * interleaved_heads) : rows;
        for (std::int64_t row = 0; row < rows; row += count) {
            const std::int64_t first = is_interleaved ? interleaved(row, rows, interleaved_heads) : row;
            convert(context, info,
                    {info.data + first * row_bytes, is_interleaved ? 2 * row_bytes : row_bytes, count, width}, dtype,
                    to + static_cast<std::size_t>(row * width) * element_bytes);
        }
    }
    copies_.push_back(std::move(copy));
    DLTensor view{to, {kDLCPU, 0}, static_cast<int>(info.shape.size()), dtype, nullptr, nullptr, 0};
    view.shape = const_cast<std::int64_t *>(info.shape.data());
    return view;
}

const Codes *Views::codes(const TensorInfo &info, std::int64_t interleaved_heads) {
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
    Codes &codes = codes_.emplace_back();
    codes.format = static_cast<CodeFormat>(*quantized_format(info)->codes);
    codes.in_features = info.shape[1];
    codes.out_features = rows;
    codes.matrix = Integers(reinterpret_cast<const std::uint8_t *>(from), {rows, row_bytes});
    return &codes;
}

Views::Memory Views::allocate(const TensorInfo &info, std::size_t bytes) {
    Memory memory(std::malloc(std::max<std::size_t>(bytes, 1)));
    if (memory == nullptr) {
        fail(HALYARD_OUT_OF_MEMORY, info.file, ": no memory for a copy of tensor ", in_quotes(info.name));
    }
    return memory;
}

void Views::convert(const halyard_context *context, const TensorInfo &info, const Rows &from, DLDataType dtype,
                    std::byte *to) {
    constexpr DLDevice cpu{kDLCPU, 0};
    std::int64_t shape[] = {from.count, from.width};
    if (const BlockFormat *const format = quantized_format(info)) {
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
    const DLDataType stored = SafeTensors::view(info).dtype;
    const auto stored_bytes = static_cast<std::size_t>(from.width) * (stored.bits / 8),
               bytes = static_cast<std::size_t>(from.width) * (dtype.bits / 8);
    const Memory aligned = same(stored, dtype) ? nullptr : allocate(info, stored_bytes);
    for (std::int64_t row = 0; row < from.count; row++, to += bytes) {
        std::memcpy(aligned ? aligned.get() : to, from.first + row * from.pitch, stored_bytes);
        if (aligned) {
            DLTensor source{aligned.get(), cpu, 1, stored, &shape[1], nullptr, 0};
            DLTensor target{to, cpu, 1, dtype, &shape[1], nullptr, 0};
            check(halyard_cast(context, &source, &target));
        }
    }
}

}  // namespace halyard::models
