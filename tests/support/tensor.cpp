// Guarded memory for tensors.
#include "support/tensor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "support/device_hooks.h"

namespace halyard::tests {
namespace {

constexpr std::uint8_t untouched = 0xff;

/** Elements from the first to one past the last. */
std::int64_t extent_in_memory(const Shape &shape, const Shape &strides) {
    std::int64_t last = 0;
    for (std::size_t axis = 0; axis < shape.size(); axis++) {
        if (shape[axis] == 0) {
            return 0;
        }
        last += (shape[axis] - 1) * strides[axis];
    }
    return last + 1;
}

/** In bytes. */
std::vector<std::int64_t> starts_of_rows(const Shape &shape, const Shape &strides, std::int64_t element_size) {
    std::vector<std::int64_t> starts = {0};
    for (std::size_t axis = 0; axis + 1 < shape.size(); axis++) {
        std::vector<std::int64_t> finer;
        for (const std::int64_t start : starts) {
            for (std::int64_t i = 0; i < shape[axis]; i++) {
                finer.push_back(start + i * strides[axis] * element_size);
            }
        }
        starts.swap(finer);
    }
    return starts;
}

std::uint32_t load(const void *address, Dtype dtype) {
    std::uint32_t wide;
    std::uint16_t narrow;
    if (dtype == Dtype::f32) {
        std::memcpy(&wide, address, sizeof wide);
        return wide;
    }
    std::memcpy(&narrow, address, sizeof narrow);
    return narrow;
}

}  // namespace

std::vector<std::uint32_t> nans_of(Dtype dtype) {
    const std::uint32_t infinity = encode(dtype, std::numeric_limits<double>::infinity());
    const std::uint32_t sign = std::uint32_t{1} << (8 * size_of(dtype) - 1);
    return {sign - 1, 2 * sign - 1, infinity + 1};
}

Shape compact_strides(const Shape &shape) {
    return padded_strides(shape, 0);
}

Shape padded_strides(const Shape &shape, std::int64_t gap) {
    Shape strides(shape.size(), 1);
    for (std::size_t axis = shape.size() - 1; axis > 0; axis--) {
        strides[axis - 1] = strides[axis] * shape[axis] + (axis == shape.size() - 1 ? gap : 0);
    }
    return strides;
}

std::string to_string(const Shape &shape) {
    std::string text = "[";
    for (std::size_t axis = 0; axis < shape.size(); axis++) {
        text += (axis == 0 ? "" : ", ") + std::to_string(shape[axis]);
    }
    return text + "]";
}

Tensor::Tensor(Dtype dtype, const Form &form)
    : element(dtype), extents(form.shape), steps(form.strides.empty() ? compact_strides(form.shape) : form.strides),
      row_starts(starts_of_rows(extents, steps, static_cast<std::int64_t>(size_of(element)))),
      step(steps.back() * static_cast<std::int64_t>(size_of(element))), view_shape(extents),
      view_strides(form.strides) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t used = size_of(element) * static_cast<std::size_t>(extent_in_memory(extents, steps) + form.shift);
    accessible_size = (used / page + 1) * page;
    mapping_size = accessible_size + 2 * page;
    void *memory = mmap(nullptr, mapping_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        std::perror("mmap of a test tensor");
        std::abort();
    }
    mapping = static_cast<std::uint8_t *>(memory);
    accessible = mapping + page;
    if (mprotect(accessible, accessible_size, PROT_READ | PROT_WRITE) != 0) {
        std::perror("mprotect of a test tensor");
        std::abort();
    }
    std::memset(accessible, untouched, accessible_size);
    memory_mapped(accessible, accessible_size);
    origin = form.placement == Placement::ends_at_guard
                 ? accessible + accessible_size - used
                 : accessible + static_cast<std::size_t>(form.shift) * size_of(element);

    view.data = origin - form.byte_offset;
    view.byte_offset = static_cast<std::uint64_t>(form.byte_offset);
    view.device = {kDLCPU, 0};
    view.dtype = dlpack_type(element);
    view.ndim = static_cast<int>(view_shape.size());
    view.shape = view_shape.data();
    view.strides = view_strides.empty() ? nullptr : view_strides.data();
}

Tensor::~Tensor() {
    memory_unmapping(accessible);
    munmap(mapping, mapping_size);
}

void *Tensor::at(std::int64_t row, std::int64_t i) const {
    return origin + row_starts[static_cast<std::size_t>(row)] + i * step;
}

std::uint32_t Tensor::bits(std::int64_t row, std::int64_t i) const {
    return load(at(row, i), element);
}

void Tensor::set_bits(std::int64_t row, std::int64_t i, std::uint32_t bits) {
    void *const address = at(row, i);
    const auto narrow = static_cast<std::uint16_t>(bits);
    if (element == Dtype::f32) {
        std::memcpy(address, &bits, sizeof bits);
    } else {
        std::memcpy(address, &narrow, sizeof narrow);
    }
}

std::vector<double> Tensor::row_values(std::int64_t row) const {
    std::vector<double> values(static_cast<std::size_t>(width()));
    for (std::size_t i = 0; i < values.size(); i++) {
        values[i] = get(row, static_cast<std::int64_t>(i));
    }
    return values;
}

std::vector<std::uint32_t> Tensor::all_bits() const {
    const std::uint32_t quiet_nan = encode(element, NAN);
    std::vector<std::uint32_t> all;
    all.reserve(static_cast<std::size_t>(count()));
    for (std::int64_t row = 0; row < rows(); row++) {
        const auto *const elements = static_cast<const std::uint8_t *>(at(row, 0));
        for (std::size_t i = 0; i < static_cast<std::size_t>(width()); i++) {
            const std::uint32_t value = load(elements + i * size_of(element), element);
            all.push_back(is_nan(element, value) ? quiet_nan : value);
        }
    }
    return all;
}

void Tensor::clear() {
    for (std::int64_t row = 0; row < rows() && width() > 0; row++) {
        std::memset(at(row, 0), untouched, static_cast<std::size_t>(width()) * size_of(element));
    }
}

void Tensor::copy_from(const Tensor &other) {
    for (std::int64_t row = 0; row < rows() && width() > 0; row++) {
        std::memcpy(at(row, 0), other.at(row, 0), static_cast<std::size_t>(width()) * size_of(element));
    }
}

bool Tensor::surroundings_intact() const {
    std::vector<std::uint8_t> bytes = snapshot();
    if (width() > 0) {
        const std::size_t row_bytes = static_cast<std::size_t>(width()) * size_of(element);
        for (std::int64_t row = 0; row < rows(); row++) {
            std::memset(bytes.data() + (static_cast<std::uint8_t *>(at(row, 0)) - accessible), untouched, row_bytes);
        }
    }
    // Equal to itself moved by one byte, and the first as it should be: all are.
    return bytes[0] == untouched && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

std::vector<std::uint8_t> Tensor::snapshot() const {
    return {accessible, accessible + accessible_size};
}

}  // namespace halyard::tests
