// The packed form of weights as the tests see it: where things lie and how the checksums are made, written down a
// second time from the description in runtime/core/handles/weights.h.
#ifndef HALYARD_TESTS_PACKED_BLOCK_H
#define HALYARD_TESTS_PACKED_BLOCK_H

#include <cstddef>
#include <cstdint>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace halyard::tests {

/** Offsets of the header's fields. */
namespace packed {
inline constexpr std::size_t magic = 0, version = 8, dtype = 12, gated = 16, norm_folded = 20, in_features = 24,
                             out_features = 32, bytes = 40, payload_checksum = 48, code_bits = 56, scale_kind = 60,
                             scale_dtype = 64, code_group = 68, reserved = 72, header_checksum = 120, header_size = 128;
}  // namespace packed

template<typename T>
T load_from(const std::uint8_t *block, std::size_t offset) {
    T value;
    std::memcpy(&value, block + offset, sizeof value);
    return value;
}

template<typename T>
void store_to(std::uint8_t *block, std::size_t offset, T value) {
    std::memcpy(block + offset, &value, sizeof value);
}

/** Where the order of inputs of a block with so many columns in both its matrices together begins, if there is one. */
constexpr std::size_t order_begin(std::size_t columns) {
    return packed::header_size + 8 * columns;
}
/** Where the panels begin; `ordered`: inputs of which there is an order. */
constexpr std::size_t panels_begin(std::size_t columns, std::size_t ordered = 0) {
    return (order_begin(columns) + 4 * ordered + 4095) / 4096 * 4096;
}

/** The version of a block of weights in this dtype (0 f32, 1 f16, 2 bf16). */
constexpr std::uint32_t version_of(std::uint32_t dtype) {
    return dtype == 2 ? 2 : 1;
}

/** Bytes of a panel: in version 2 inputs come in pairs. */
constexpr std::size_t panel_size(std::uint32_t version, std::uint32_t dtype, std::size_t in) {
    return (version == 2 ? (in + 1) / 2 * 2 : in) * 16 * (dtype == 0 ? 4 : 2);
}

/** Bytes of the scales of a block of quantized inputs, and those of its codes; in the order of halyard_scale_kind. */
constexpr std::size_t scale_bytes(std::uint32_t kind, std::uint32_t scale_dtype, std::size_t group,
                                  std::size_t inputs) {
    const std::size_t groups = group == 0 ? 1 : (inputs + group - 1) / group, supers = (inputs + 255) / 256,
                      number = scale_dtype == 0 ? 4 : 2;
    const std::size_t of_column = kind == 0   ? groups * number
                                  : kind == 1 ? groups * (number + 1)
                                  : kind == 2 ? groups * 2 * number
                                  : kind == 3 ? supers * 2 * number + groups * 2
                                              : supers * number + groups;
    return (16 * of_column + 63) / 64 * 64;
}
constexpr std::size_t code_bytes(std::uint32_t bits, std::size_t inputs) {
    return (inputs * bits + 31) / 32 * 64;
}

/** Bytes of a panel of codes. */
constexpr std::size_t code_panel_size(std::uint32_t bits, std::uint32_t kind, std::uint32_t scale_dtype,
                                      std::size_t group, std::size_t in) {
    std::size_t size = 0;
    for (std::size_t k = 0; k < in; k += 512) {
        const std::size_t inputs = in - k < 512 ? in - k : 512;
        size += scale_bytes(kind, scale_dtype, group, inputs) + code_bytes(bits, inputs);
    }
    return size;
}

/** Where a panel holds an element: of a pair the later input lies first, in the lower half of a little-endian word. */
constexpr std::size_t place_in_panel(std::uint32_t version, std::uint32_t dtype, std::size_t input,
                                     std::size_t column) {
    return version == 2 ? input / 2 * 64 + column * 4 + (input % 2 == 0 ? 2 : 0)
                        : (input * 16 + column) * (dtype == 0 ? 4 : 2);
}

/** The header's checksum, made to fit. */
inline void sign_header(std::uint8_t *block) {
    store_to(block, packed::header_checksum, static_cast<std::uint64_t>(XXH3_64bits(block, packed::header_checksum)));
}

/** Both checksums, made to fit the rest, if the header says where the panels are in a block of `size` bytes. */
inline void sign(std::uint8_t *block, std::size_t size) {
    const auto in = static_cast<std::size_t>(load_from<std::int64_t>(block, packed::in_features));
    const auto out = static_cast<std::size_t>(load_from<std::int64_t>(block, packed::out_features));
    if (in >= 1 && in < 1u << 20 && out >= 1 && out < 1u << 20) {
        const std::size_t panels = (out + 15) / 16 * (load_from<std::uint32_t>(block, packed::gated) == 1 ? 2 : 1);
        const auto field = [&](std::size_t offset) { return load_from<std::uint32_t>(block, offset); };
        const std::size_t panel_bytes =
            field(packed::version) >= 3 && field(packed::code_bits) < 64 && field(packed::scale_kind) < 5
                ? code_panel_size(field(packed::code_bits), field(packed::scale_kind), field(packed::scale_dtype),
                                  field(packed::code_group), in)
                : panel_size(field(packed::version), field(packed::dtype), in);
        const std::size_t begin = panels_begin(16 * panels, field(packed::version) == 4 ? in : 0);
        if (begin + panels * panel_bytes <= size) {
            std::uint64_t sum = XXH3_64bits_withSeed(block + packed::header_size, begin - packed::header_size, 0);
            for (std::size_t panel = 0; panel < panels; panel++) {
                sum += XXH3_64bits_withSeed(block + begin + panel * panel_bytes, panel_bytes, panel + 1);
            }
            store_to(block, packed::payload_checksum, sum);
        }
    }
    sign_header(block);
}

}  // namespace halyard::tests

#endif
