// Matrices that are quantized already, written from the formats' own descriptions into guarded memory.
#ifndef HALYARD_TESTS_SUPPORT_CODE_SOURCE_H
#define HALYARD_TESTS_SUPPORT_CODE_SOURCE_H

#include <memory>
#include <string>
#include <vector>

#include "support/coded_matrix.h"
#include "support/linear.h"

namespace halyard::tests {

class Pieces;

/** A format of GGUF, as ggml-common.h and the dequantize_row_ functions of ggml-quants.c have it. */
struct BlockFormat {
    const char *name;
    halyard_code_format format;
    std::int64_t inputs, bytes;
    int bits;  // of a packed code
    halyard_scale_kind kind;
    std::int64_t scale, minimum;  // where d or s, and dmin or m, are; -1: nowhere
    int group;
    std::uint32_t code_offset;  // of packed codes, from those of the file
    Pieces (*code)(std::int64_t j);
};

extern const BlockFormat block_formats[];

/** A matrix of integers of 1 or 4 bytes, with a gap behind each row, next to a guard page. */
class IntegerTensor {
public:
    IntegerTensor(DLDataType type, Shape extents, std::int64_t gap, Placement placement)
        : shape(std::move(extents)), strides(padded_strides(shape, gap)), size(type.bits / 8),
          bytes(((shape[0] - 1) * strides[0] + (shape.size() > 1 ? shape[1] : 1)) * size),
          memory(Dtype::f16, {{(bytes + 1) / 2}, {}, placement, 0, 0}) {
        first = static_cast<std::uint8_t *>(memory.view.data) + (placement == Placement::ends_at_guard ? bytes % 2 : 0);
        for (std::int64_t i = 0; i < (bytes + 1) / 2; i++) {
            memory.set_bits(0, i, 0xffff);
        }
        view.data = first;
        view.device = {kDLCPU, 0};
        view.ndim = static_cast<int>(shape.size());
        view.dtype = type;
        view.shape = shape.data();
        view.strides = strides.data();
        for (std::int64_t row = 0; row < shape[0]; row++) {
            std::memset(at(row, 0), 0, static_cast<std::size_t>(shape.size() > 1 ? shape[1] * size : size));
        }
    }

    std::uint8_t *at(std::int64_t row, std::int64_t i) { return first + (row * strides[0] + i) * size; }
    bool intact() const { return memory.surroundings_intact(); }

    DLTensor view{};

private:
    Shape shape, strides;
    const std::int64_t size, bytes;
    Tensor memory;
    std::uint8_t *first;
};

inline constexpr DLDataType u8 = {kDLUInt, 8, 1}, i8 = {kDLInt, 8, 1}, i32 = {kDLInt, 32, 1};

struct CodeCase {
    halyard_code_format format = HALYARD_CODES_Q8_0;
    int bits = 0;  // where the format leaves them open
    std::int64_t in = 1, out = 1, group = 0;
    bool zeros = false, gated = false;
    Dtype scales = Dtype::f16;
    std::int64_t gap = 0;
    Placement placement = Placement::ends_at_guard;

    std::string describe() const {
        return "format " + std::to_string(format) + ", " + std::to_string(bits) + " bits, in " + std::to_string(in) +
               " out " + std::to_string(out) + " group " + std::to_string(group) + (zeros ? " zeros" : "") +
               (gated ? " gated" : "") + " scales " + name_of(scales) + " gap " + std::to_string(gap);
    }
    const BlockFormat *block() const {
        return format <= HALYARD_CODES_Q6_K ? &block_formats[static_cast<int>(format)] : nullptr;
    }
    int code_bits() const { return block() ? block()->bits : format == HALYARD_CODES_INT8 ? 8 : bits == 0 ? 4 : bits; }
    std::int64_t source_group() const { return group == 0 ? in : group; }
    /** What must come of it. */
    CodeForm form() const {
        CodeForm f;
        f.in = in;
        f.out = out;
        f.gated = gated;
        f.scales = scales;
        f.bits = code_bits();
        f.kind = block() ? block()->kind : zeros ? HALYARD_SCALE_ZERO : HALYARD_SCALE_PLAIN;
        f.group = block() ? block()->group : static_cast<int>(group);
        while (f.group > 256 || (f.group & (f.group - 1)) != 0) {
            f.group = f.group % 512 == 0 ? 256 : f.group & -f.group;
        }
        return f;
    }
};

/** Random codes of a case in two ways: as the file has them, and as a CodedMatrix. */
class CodeSource {
public:
    explicit CodeSource(const CodeCase &c, std::uint64_t seed = 1);

    const CodeCase form;
    CodedMatrix expected;
    halyard_codes codes[2] = {};
    std::unique_ptr<IntegerTensor> matrix[2], zeros[2];
    std::unique_ptr<Tensor> scales[2];

    const halyard_codes *up() const { return form.gated ? &codes[1] : nullptr; }
    bool intact() const;
    /** Bytes of the packed weights. */
    std::int64_t size() const;
    PackedWeights pack(const halyard_context *context = nullptr) const;

    /** The weight as the format's own reference makes it, of what the file has. */
    float value(int m, std::int64_t k, std::int64_t n);
    /** All weights, by output and input. */
    std::vector<float> values(int m);

private:
    /** Where a code, or a zero of a group, begins, from the tensor's first byte on. */
    struct Place {
        std::int64_t byte;
        int shift;
    };
    Place place(int m, std::int64_t k, std::int64_t n, bool zero);
    std::uint32_t read(const std::uint8_t *from, const Place &p) const;
    void write(std::uint8_t *to, const Place &p, std::uint32_t value) const;
    void describe(int m);
    void make_blocks(int m);
    void make_tensors(int m);
};

/** Each format, with each number of bits that it may have. */
struct FormatAndBits {
    halyard_code_format format;
    int bits;
};
std::vector<FormatAndBits> all_formats();
std::string name_of_format(const testing::TestParamInfo<FormatAndBits> &info);

}  // namespace halyard::tests

#endif
