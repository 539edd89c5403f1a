// A tensor that notices every access outside its elements.
//
// Its memory is mapped between two inaccessible pages, and the first or the last element touches one of them: an
// access past that end stops the process. Every byte that is not an element (the gaps of a padded pitch, the rest of
// the pages) and every element not yet written holds 0xff, which is a NaN in all three types: a read of it poisons
// the result, a write to it shows in `surroundings_intact`.
#ifndef HALYARD_TESTS_TENSOR_H
#define HALYARD_TESTS_TENSOR_H

#include <cstdint>
#include <string>
#include <vector>

#include "support/operations.h"

namespace halyard::tests {

using Shape = std::vector<std::int64_t>;

enum class Placement { ends_at_guard, starts_at_guard };

/** How a tensor lies in memory. */
struct Form {
    Shape shape;
    Shape strides;  // in elements; empty: compact, and the view's strides are null
    Placement placement = Placement::ends_at_guard;
    std::int64_t shift = 0;        // elements between the guard page and the element next to it
    std::int64_t byte_offset = 0;  // passed in the view, whose data pointer is that much lower
};

class Tensor {
public:
    Tensor(Dtype dtype, const Form &form);
    ~Tensor();
    Tensor(const Tensor &) = delete;
    Tensor &operator=(const Tensor &) = delete;

    /** The view to pass; it may be changed, the tensor itself does not read it. */
    DLTensor view{};

    Dtype dtype() const { return element; }
    const Shape &shape() const { return extents; }
    const Shape &strides() const { return steps; }
    Form form() const { return {extents, steps}; }
    /** Elements of the last axis, and how many such rows there are. */
    std::int64_t width() const { return extents.back(); }
    std::int64_t rows() const { return static_cast<std::int64_t>(row_starts.size()); }
    std::int64_t count() const { return rows() * width(); }

    // Elements by row (in row-major order of the leading axes) and feature.
    std::uint32_t bits(std::int64_t row, std::int64_t i) const;
    void set_bits(std::int64_t row, std::int64_t i, std::uint32_t bits);
    double get(std::int64_t row, std::int64_t i) const { return decode(element, bits(row, i)); }
    void set(std::int64_t row, std::int64_t i, double value) { set_bits(row, i, encode(element, value)); }
    /** Address of an element. */
    void *at(std::int64_t row, std::int64_t i) const;

    std::vector<double> row_values(std::int64_t row) const;
    /** The bits of all elements in row-major order; every NaN as the same quiet NaN. */
    std::vector<std::uint32_t> all_bits() const;
    /** Sets every element from a function of row and feature. */
    template<typename Function>
    void fill(const Function &value) {
        for (std::int64_t row = 0; row < rows(); row++) {
            for (std::int64_t i = 0; i < width(); i++) {
                set(row, i, value(row, i));
            }
        }
    }
    /** Makes every element as it was before it was written. */
    void clear();
    /** Copies the elements of a tensor of the same shape and type, bit for bit. */
    void copy_from(const Tensor &other);

    /** True if every byte outside the elements is as it was made. */
    bool surroundings_intact() const;
    /** All accessible bytes, to compare with later. */
    std::vector<std::uint8_t> snapshot() const;

private:
    Dtype element;
    Shape extents, steps;
    std::vector<std::int64_t> row_starts;  // in bytes from `origin`
    std::int64_t step;                     // in bytes from an element of a row to the next
    std::uint8_t *mapping = nullptr, *accessible = nullptr, *origin = nullptr;
    std::size_t mapping_size = 0, accessible_size = 0;
    Shape view_shape, view_strides;
};

/** NaNs of a type: quiet with all bits set, of both signs, and the least signalling one. */
std::vector<std::uint32_t> nans_of(Dtype dtype);

/** Strides of a compact tensor, the last axis contiguous. */
Shape compact_strides(const Shape &shape);
/** Strides with `gap` unused elements after each row. */
Shape padded_strides(const Shape &shape, std::int64_t gap);

std::string to_string(const Shape &shape);

}  // namespace halyard::tests

#endif
