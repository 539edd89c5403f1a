#include "views.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fail.h"
#include "gguf_blocks.h"

namespace halyard::models {

namespace {

bool is_quantized(const TensorInfo &info) {
    const BlockFormat *const format = block_format(info.dtype);
    return format != nullptr && format->dequantize != nullptr;
}

/// Where row `row` of so many lies in a file that has heads interleaved.
std::int64_t interleaved(std::int64_t row, std::int64_t rows, std::int64_t heads) {
    const std::int64_t width = rows / heads, within = row % width, half = width / 2;
    return row - within + 2 * (within % half) + within / half;
}

}  // namespace

std::optional<DLDataType> plain_dtype(const TensorInfo &info) {
    if (is_quantized(info)) {
        return std::nullopt;
    }
    return SafeTensors::view(info).dtype;
}

ConstTensor Views::of(const TensorInfo &info, DLDataType dtype, std::int64_t interleaved_heads) {
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
        convert(info, info.data, elements, dtype, static_cast<std::byte *>(in_file_order.get()));
        for (std::int64_t i = 0; i < elements; i++) {
            const std::int64_t place = interleaved(i, elements, interleaved_heads);
            std::memcpy(to + static_cast<std::size_t>(i) * element_bytes,
                        from + static_cast<std::size_t>(place) * element_bytes, element_bytes);
        }
    } else {
        // Row by row: what is converted on the way is never a whole tensor more.
        const std::int64_t rows = elements > 0 && info.shape.size() > 1 ? info.shape.front() : 1;
        const std::int64_t width = elements / rows;
        for (std::int64_t row = 0; row < rows; row++) {
            const std::int64_t from = interleaved_heads != 0 ? interleaved(row, rows, interleaved_heads) : row;
            convert(info, info.data + from * (info.bytes / rows), width, dtype,
                    to + static_cast<std::size_t>(row * width) * element_bytes);
        }
    }
    copies_.push_back(std::move(copy));
    DLTensor view{to, {kDLCPU, 0}, static_cast<int>(info.shape.size()), dtype, nullptr, nullptr, 0};
    view.shape = const_cast<std::int64_t *>(info.shape.data());
    return view;
}

Views::Memory Views::allocate(const TensorInfo &info, std::size_t bytes) {
    Memory memory(std::malloc(std::max<std::size_t>(bytes, 1)));
    if (memory == nullptr) {
        fail(HALYARD_OUT_OF_MEMORY, info.file, ": no memory for a copy of tensor ", in_quotes(info.name));
    }
    return memory;
}

void Views::convert(const TensorInfo &info, const std::byte *from, std::int64_t count, DLDataType dtype,
                    std::byte *to) {
    const bool quantized = is_quantized(info);
    const DLDataType stored = quantized ? element<float>::dtype : SafeTensors::view(info).dtype;
    const auto write = [&](std::byte *target) {
        if (quantized) {
            dequantize(*block_format(info.dtype), from, count, reinterpret_cast<float *>(target));
        } else {
            std::memcpy(target, from, static_cast<std::size_t>(count) * (stored.bits / 8));
        }
    };
    if (same(stored, dtype)) {
        write(to);
        return;
    }
    const Memory memory = allocate(info, static_cast<std::size_t>(count) * (stored.bits / 8));
    write(static_cast<std::byte *>(memory.get()));
    DLTensor source{memory.get(), {kDLCPU, 0}, 1, stored, &count, nullptr, 0};
    DLTensor target{to, {kDLCPU, 0}, 1, dtype, &count, nullptr, 0};
    check(halyard_cast(nullptr, &source, &target));
}

}  // namespace halyard::models
