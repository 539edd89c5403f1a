// Tensors of files as the library takes them.
#ifndef HALYARD_MODELS_VIEWS_H
#define HALYARD_MODELS_VIEWS_H

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "halyard/model.hpp"

namespace halyard::models {

/// The dtype of a tensor; none if it is quantized. Throws `Error` if it is one that is not supported.
std::optional<DLDataType> plain_dtype(const TensorInfo &info);

inline bool same(DLDataType a, DLDataType b) noexcept {
    return a.code == b.code && a.bits == b.bits;
}

/// Views of tensors, and copies of those that the library cannot take where they are: at an address that is no multiple
/// of their elements, of another dtype, quantized, or with rows in another order. Views last as long as this and the
/// files.
class Views {
public:
    /// interleaved_heads: as in `Part`.
    ConstTensor of(const halyard_context *context, const TensorInfo &info, DLDataType dtype,
                   std::int64_t interleaved_heads = 0);

    /// A quantized matrix as it is; rows are copied where they lie in another order. Valid as long as this and the files.
    const Codes *codes(const TensorInfo &info, std::int64_t interleaved_heads = 0);

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
    static void convert(const halyard_context *context, const TensorInfo &info, const Rows &from, DLDataType dtype,
                        std::byte *to);

    std::vector<Memory> copies_;
    std::deque<Codes> codes_;
};

}  // namespace halyard::models

#endif
