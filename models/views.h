// Tensors of files as the library takes them.
#ifndef HALYARD_MODELS_VIEWS_H
#define HALYARD_MODELS_VIEWS_H

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <vector>

#include "halyard/model.hpp"
#include "stored_tensor.h"

namespace halyard::models {

/// Where row `row` of so many lies in a file that has heads interleaved.
std::int64_t interleaved(std::int64_t row, std::int64_t rows, std::int64_t heads) noexcept;

/// The product of the extents.
std::int64_t elements_of(const std::vector<std::int64_t> &shape) noexcept;

/// Views of tensors, and copies of those that the library cannot take where they are: at an address that is no multiple
/// of their elements, of another dtype, quantized, or with rows in another order. Views last as long as this and the
/// files.
class Views {
public:
    /// interleaved_heads: as in `Part`.
    ConstTensor of(const halyard_context *context, const StoredTensor &stored, DLDataType dtype,
                   std::int64_t interleaved_heads = 0);

    /// A quantized matrix as it is; rows are copied where they lie in another order, which only GGUF has. Valid as long as this
    /// and the files.
    const Codes *codes(const StoredTensor &stored, std::int64_t interleaved_heads = 0);

private:
    struct Free {
        void operator()(void *memory) const noexcept { std::free(memory); }
    };
    using Memory = std::unique_ptr<void, Free>;

    static Memory allocate(const TensorInfo &info, std::size_t bytes);
    /// Rows in a file, the first at `first`.
    struct Rows {
        const std::byte *first;
        std::int64_t pitch, count, width;  // bytes from one to the next; rows; elements of each
    };
    /// Rows of a tensor into memory, one after another.
    static void convert(const halyard_context *context, const StoredTensor &stored, const Rows &from, DLDataType dtype,
                        std::byte *to);
    /// Numbers of a tensor in the order of the model.
    static void convert_all(const halyard_context *context, const StoredTensor &stored, DLDataType dtype,
                            std::int64_t interleaved_heads, std::byte *to);
    Codes blocks(const StoredTensor &stored, std::int64_t interleaved_heads);
    Codes several_tensors(const StoredTensor &stored);
    /// The bytes of a tensor, or a copy of them at an address that is a multiple of its elements.
    const std::byte *aligned(const TensorInfo &info, std::size_t element_bytes);

    std::vector<Memory> copies_;
    std::deque<Codes> codes_;
};

}  // namespace halyard::models

#endif
