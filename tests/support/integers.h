// Tensors of integers for calls that take targets or ids.
#ifndef HALYARD_TESTS_INTEGERS_H
#define HALYARD_TESTS_INTEGERS_H

#include <cstdint>
#include <vector>

#include "support/tensor.h"

namespace halyard::tests {

/** int32 or int64 of any shape, `step` elements from each to the next; what lies between would be out of range. */
class IntegerTensor {
public:
    IntegerTensor(const std::vector<std::int64_t> &values, const Shape &extents, bool is_64_bit = true,
                  std::int64_t step = 1)
        : shape(extents), strides(compact_strides(extents)) {
        for (const std::int64_t value : values) {
            wide.push_back(value);
            wide.insert(wide.end(), static_cast<std::size_t>(step - 1), INT32_MAX);
        }
        narrow.assign(wide.begin(), wide.end());
        for (std::int64_t &stride : strides) {
            stride *= step;
        }
        view.data = is_64_bit ? static_cast<void *>(wide.data()) : static_cast<void *>(narrow.data());
        view.device = {kDLCPU, 0};
        view.ndim = static_cast<int>(shape.size());
        view.dtype = {kDLInt, static_cast<std::uint8_t>(is_64_bit ? 64 : 32), 1};
        view.shape = shape.data();
        view.strides = step > 1 ? strides.data() : nullptr;
    }
    IntegerTensor(const IntegerTensor &) = delete;
    IntegerTensor &operator=(const IntegerTensor &) = delete;

    DLTensor view{};

private:
    std::vector<std::int64_t> wide;
    std::vector<std::int32_t> narrow;
    Shape shape, strides;
};

}  // namespace halyard::tests

#endif
