// Matrices that are quantized already: packed bytes, products and numbers of every format, from sources that are written here from the
// formats' own descriptions, and every way in which they can be wrong.
#include <array>
#include <fstream>
#include <limits>
#include <map>

#include "support/coded_matrix.h"
#include "support/linear.h"
#include "support/test_scale.h"

namespace halyard::tests {
namespace {

// ---- The formats, a second time ----

/** Some bits of a code or factor: so many of a byte, which count from 2^at on. */
struct Piece {
    std::int64_t byte;
    int shift, bits, at;
};
/** One or two, without memory of their own: there are some for each element of a matrix. */
class Pieces {
public:
    Pieces(std::initializer_list<Piece> list) {
        for (const Piece &piece : list) {
            push_back(piece);
        }
    }
    void push_back(const Piece &piece) { pieces[count++] = piece; }
    const Piece *begin() const { return pieces.data(); }
    const Piece *end() const { return pieces.data() + count; }

private:
    std::array<Piece, 2> pieces{};
    std::size_t count = 0;
};

std::uint32_t gathered(const std::uint8_t *block, const Pieces &pieces) {
    std::uint32_t value = 0;
    for (const Piece &p : pieces) {
        value |= (static_cast<std::uint32_t>(block[p.byte] >> p.shift) & ((1u << p.bits) - 1)) << p.at;
    }
    return value;
}

void scatter(std::uint8_t *block, const Pieces &pieces, std::uint32_t value) {
    for (const Piece &p : pieces) {
        const std::uint32_t mask = (1u << p.bits) - 1;
        block[p.byte] =
            static_cast<std::uint8_t>((block[p.byte] & ~(mask << p.shift)) | (value >> p.at & mask) << p.shift);
    }
}

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

Pieces halves(std::int64_t first, std::int64_t j, std::int64_t count) {
    return {{first + j / (2 * count) * count + j % count, static_cast<int>(j % (2 * count) / count * 4), 4, 0}};
}
Pieces with_fifth(Pieces pieces, std::int64_t byte, std::int64_t bit) {
    pieces.push_back({byte, static_cast<int>(bit), 1, 4});
    return pieces;
}

const BlockFormat block_formats[] = {
    {"Q8_0", HALYARD_CODES_Q8_0, 32, 34, 8, HALYARD_SCALE_PLAIN, 0, -1, 32, 128,
     [](std::int64_t j) {
         return Pieces{{2 + j, 0, 8, 0}};
     }},
    {"Q4_0", HALYARD_CODES_Q4_0, 32, 18, 4, HALYARD_SCALE_PLAIN, 0, -1, 32, 0,
     [](std::int64_t j) { return halves(2, j, 16); }},
    {"Q4_1", HALYARD_CODES_Q4_1, 32, 20, 4, HALYARD_SCALE_MIN, 0, 2, 32, 0,
     [](std::int64_t j) { return halves(4, j, 16); }},
    {"Q5_0", HALYARD_CODES_Q5_0, 32, 22, 8, HALYARD_SCALE_PLAIN, 0, -1, 32, 128 - 16,
     [](std::int64_t j) { return with_fifth(halves(6, j, 16), 2 + j / 8, j % 8); }},
    {"Q5_1", HALYARD_CODES_Q5_1, 32, 24, 8, HALYARD_SCALE_MIN, 0, 2, 32, 0,
     [](std::int64_t j) { return with_fifth(halves(8, j, 16), 4 + j / 8, j % 8); }},
    {"Q4_K", HALYARD_CODES_Q4_K, 256, 144, 4, HALYARD_SCALE_TWO_LEVELS, 0, 2, 32, 0,
     [](std::int64_t j) { return halves(16, j, 32); }},
    {"Q5_K", HALYARD_CODES_Q5_K, 256, 176, 8, HALYARD_SCALE_TWO_LEVELS, 0, 2, 32, 0,
     [](std::int64_t j) { return with_fifth(halves(48, j, 32), 16 + j % 32, j / 32); }},
    {"Q6_K", HALYARD_CODES_Q6_K, 256, 210, 8, HALYARD_SCALE_TWO_LEVELS_SIGNED, 208, -1, 16, 128 - 32,
     [](std::int64_t j) {
         const std::int64_t half = j / 128, l = j % 128;
         return Pieces{{64 * half + l % 64, static_cast<int>(l / 64 * 4), 4, 0},
                       {128 + 32 * half + l % 32, static_cast<int>(l / 32 * 2), 2, 4}};
     }},
};

/** get_scale_min_k4 of ggml, for sub-block i of 8. */
Pieces factor_of(const BlockFormat &f, std::int64_t i) {
    if (f.kind == HALYARD_SCALE_TWO_LEVELS_SIGNED) {
        return {{192 + i, 0, 8, 0}};
    }
    return i < 4 ? Pieces{{4 + i, 0, 6, 0}} : Pieces{{8 + i, 0, 4, 0}, {i, 6, 2, 4}};
}
Pieces minimum_factor_of(std::int64_t i) {
    return i < 4 ? Pieces{{8 + i, 0, 6, 0}} : Pieces{{8 + i, 4, 4, 0}, {4 + i, 6, 2, 4}};
}

float f16_at(const std::uint8_t *bytes) {
    return static_cast<float>(decode(Dtype::f16, static_cast<std::uint32_t>(bytes[0] | bytes[1] << 8)));
}

/** The weight that ggml makes of input j of a block, by the operations of its dequantize_row_ function. */
float block_value(const BlockFormat &f, const std::uint8_t *block, std::int64_t j) {
    const int code = static_cast<int>(gathered(block, f.code(j)));
    const float d = f16_at(block + f.scale);
    switch (f.format) {
    case HALYARD_CODES_Q8_0:
        return static_cast<float>(static_cast<std::int8_t>(code)) * d;
    case HALYARD_CODES_Q4_0:
        return static_cast<float>(code - 8) * d;
    case HALYARD_CODES_Q5_0:
        return static_cast<float>(code - 16) * d;
    case HALYARD_CODES_Q4_1:
    case HALYARD_CODES_Q5_1:
        return static_cast<float>(code) * d + f16_at(block + f.minimum);
    case HALYARD_CODES_Q6_K: {
        const auto factor = static_cast<std::int8_t>(gathered(block, factor_of(f, j / 16)));
        return d * static_cast<float>(factor) * static_cast<float>(code - 32);
    }
    default: {
        const float scale = d * static_cast<float>(gathered(block, factor_of(f, j / 32)));
        const float low = f16_at(block + f.minimum) * static_cast<float>(gathered(block, minimum_factor_of(j / 32)));
        return scale * static_cast<float>(code) - low;
    }
    }
}

// ---- Sources in guarded memory ----

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

constexpr DLDataType u8 = {kDLUInt, 8, 1}, i8 = {kDLInt, 8, 1}, i32 = {kDLInt, 32, 1};

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
    explicit CodeSource(const CodeCase &c, std::uint64_t seed = 1)
        : form(c), expected(CodedMatrix::random(c.form(), seed)) {
        for (int m = 0; m <= (c.gated ? 1 : 0); m++) {
            c.block() ? make_blocks(m) : make_tensors(m);
        }
    }

    const CodeCase form;
    CodedMatrix expected;
    halyard_codes codes[2] = {};
    std::unique_ptr<IntegerTensor> matrix[2], zeros[2];
    std::unique_ptr<Tensor> scales[2];

    const halyard_codes *up() const { return form.gated ? &codes[1] : nullptr; }

    bool intact() const {
        for (const auto &list : {&matrix, &zeros}) {
            for (const auto &tensor : *list) {
                if (tensor && !tensor->intact()) {
                    return false;
                }
            }
        }
        return true;
    }

    std::int64_t size() const {
        std::int64_t bytes = -1;
        EXPECT_EQ(halyard_weights_codes_size(&codes[0], up(), &bytes), HALYARD_OK) << halyard_last_error();
        return bytes;
    }

    PackedWeights pack(const halyard_context *context = nullptr) const {
        halyard_weights *weights = nullptr;
        EXPECT_EQ(halyard_weights_pack_codes(context, &codes[0], up(), nullptr, 0, &weights), HALYARD_OK)
            << halyard_last_error();
        return PackedWeights(weights);
    }

    /** All weights, by output and input. */
    std::vector<float> values(int m) {
        std::vector<float> all;
        all.reserve(static_cast<std::size_t>(form.out * form.in));
        for (std::int64_t n = 0; n < form.out; n++) {
            for (std::int64_t k = 0; k < form.in; k++) {
                all.push_back(value(m, k, n));
            }
        }
        return all;
    }

    /** The weight as the format's own reference makes it, of what the file has. */
    float value(int m, std::int64_t k, std::int64_t n) {
        if (const BlockFormat *const f = form.block()) {
            return block_value(*f, matrix[m]->at(n, k / f->inputs * f->bytes), k % f->inputs);
        }
        const bool transposed = form.format >= HALYARD_CODES_GPTQ;
        const std::int64_t g = k / form.source_group();
        const auto scale = static_cast<float>(transposed ? scales[m]->get(g, n) : scales[m]->get(n, g));
        const int half = 1 << (form.code_bits() - 1);
        int code = static_cast<int>(read(matrix[m]->at(0, 0), place(m, k, n, false))), zero = half;
        if (form.zeros) {
            zero = static_cast<int>(read(zeros[m]->at(0, 0), place(m, g, n, true)));
        }
        if (form.format == HALYARD_CODES_INT8) {
            code = static_cast<std::int8_t>(code);
            zero = form.zeros ? static_cast<std::int8_t>(zero) : 0;
        } else if (form.format == HALYARD_CODES_GPTQ && form.zeros) {
            zero = (zero + 1) % (2 * half);
        }
        return static_cast<float>(code - zero) * scale;
    }

private:
    /** Where a code, or a zero of a group, begins, from the tensor's first byte on. */
    struct Place {
        std::int64_t byte;
        int shift;
    };
    Place place(int m, std::int64_t k, std::int64_t n, bool zero) {
        IntegerTensor &tensor = zero ? *zeros[m] : *matrix[m];
        const int bits = form.code_bits(), joined = 32 / bits;
        std::int64_t row = 0, word = 0;
        int shift = 0;
        const auto join = [&](std::int64_t &index, int order) {
            index /= joined;
            shift = bits * order;
        };
        // AutoAWQ's order_map of the columns of a word.
        constexpr std::array<std::int64_t, 8> order_map = {0, 2, 4, 6, 1, 3, 5, 7};
        switch (form.format) {
        case HALYARD_CODES_INT8:
            return {tensor.at(n, k) - tensor.at(0, 0), 0};
        case HALYARD_CODES_COMPRESSED_TENSORS:
            row = n;
            word = k;
            zero ? join(row, static_cast<int>(n % joined)) : join(word, static_cast<int>(k % joined));
            break;
        case HALYARD_CODES_AWQ:
            row = k;
            word = n;
            join(word, static_cast<int>(std::find(order_map.begin(), order_map.end(), n % 8) - order_map.begin()));
            break;
        default:
            row = k;
            word = n;
            zero ? join(word, static_cast<int>(n % joined)) : join(row, static_cast<int>(k % joined));
        }
        return {tensor.at(row, word) - tensor.at(0, 0), shift};
    }

    std::uint32_t read(const std::uint8_t *from, const Place &p) const {
        return static_cast<std::uint32_t>(from[p.byte + p.shift / 8] >> p.shift % 8) & ((1u << form.code_bits()) - 1);
    }
    void write(std::uint8_t *to, const Place &p, std::uint32_t value) const {
        std::uint8_t &byte = to[p.byte + p.shift / 8];
        byte = static_cast<std::uint8_t>(byte | (value & ((1u << form.code_bits()) - 1)) << p.shift % 8);
    }

    void describe(int m) {
        codes[m].format = form.format;
        codes[m].bits = form.bits;
        codes[m].in_features = form.in;
        codes[m].out_features = form.out;
        codes[m].group = form.group;
        codes[m].matrix = &matrix[m]->view;
    }

    void make_blocks(int m) {
        const BlockFormat &f = *form.block();
        matrix[m] = std::make_unique<IntegerTensor>(u8, Shape{form.out, form.in / f.inputs * f.bytes}, form.gap,
                                                    form.placement);
        describe(m);
        for (std::int64_t n = 0; n < form.out; n++) {
            for (std::int64_t k = 0; k < form.in; k++) {
                std::uint8_t *const block = matrix[m]->at(n, k / f.inputs * f.bytes);
                const std::int64_t j = k % f.inputs;
                std::uint8_t &code = expected.code(m, k, n);
                // As many bits as the format has.
                const std::uint32_t bits = f.format == HALYARD_CODES_Q8_0   ? 8
                                           : f.format == HALYARD_CODES_Q6_K ? 6
                                                                            : 4 + (f.bits == 8);
                const std::uint32_t stored = code & ((1u << bits) - 1);
                code = static_cast<std::uint8_t>(stored + f.code_offset);
                scatter(block, f.code(j), stored);
                const std::uint32_t scale = expected.scale(m, k, n), low = expected.minimum(m, k, n);
                std::memcpy(block + f.scale, &scale, 2);
                if (f.minimum >= 0) {
                    std::memcpy(block + f.minimum, &low, 2);
                }
                if (expected.form.two_levels()) {
                    scatter(block, factor_of(f, j / f.group), expected.factor(m, k, n));
                }
                if (f.kind == HALYARD_SCALE_TWO_LEVELS) {
                    scatter(block, minimum_factor_of(j / f.group), expected.zero(m, k, n));
                }
            }
        }
    }

    void make_tensors(int m) {
        const int bits = form.code_bits(), joined = 32 / bits;
        const auto ceil = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
        const std::int64_t groups = ceil(form.in, form.source_group());
        const bool transposed = form.format >= HALYARD_CODES_GPTQ;
        const auto shape = [&](std::int64_t outputs, std::int64_t inputs) {
            return transposed ? Shape{inputs, outputs} : Shape{outputs, inputs};
        };
        const auto make = [&](DLDataType type, const Shape &extents) {
            return std::make_unique<IntegerTensor>(type, extents, form.gap, form.placement);
        };
        if (form.format == HALYARD_CODES_INT8) {
            matrix[m] = make(i8, shape(form.out, form.in));
            zeros[m] = make(i8, shape(form.out, groups));
        } else {
            matrix[m] = make(i32, form.format == HALYARD_CODES_AWQ ? shape(ceil(form.out, joined), form.in)
                                                                   : shape(form.out, ceil(form.in, joined)));
            zeros[m] = make(i32, shape(ceil(form.out, joined), groups));
        }
        const Shape of_scales = shape(form.out, groups);
        scales[m] = std::make_unique<Tensor>(
            form.scales, Form{of_scales, padded_strides(of_scales, form.gap), form.placement, 0, 0});
        describe(m);
        codes[m].scales = &scales[m]->view;
        codes[m].zeros = form.zeros ? &zeros[m]->view : nullptr;
        const std::uint32_t half = form.format == HALYARD_CODES_INT8 ? 128 : 0;
        for (std::int64_t n = 0; n < form.out; n++) {
            for (std::int64_t k = 0; k < form.in; k++) {
                write(matrix[m]->at(0, 0), place(m, k, n, false), expected.code(m, k, n) ^ half);
                // One for all groups of the packed form that it becomes.
                const std::int64_t g = k / form.source_group(), first = g * form.source_group();
                const std::uint32_t scale = expected.scale(m, k, n) = expected.scale(m, first, n);
                transposed ? scales[m]->set_bits(g, n, scale) : scales[m]->set_bits(n, g, scale);
                std::uint8_t &zero = expected.zero(m, k, n);
                zero = static_cast<std::uint8_t>(expected.zero(m, first, n) & ((1u << bits) - 1));
                if (k == first) {
                    const std::uint32_t less = form.format == HALYARD_CODES_GPTQ ? 1 : 0;
                    write(zeros[m]->at(0, 0), place(m, g, n, true), (zero - less) ^ half);
                }
            }
        }
    }
};

/** Each format, with each number of bits that it may have. */
struct FormatAndBits {
    halyard_code_format format;
    int bits;
};
std::vector<FormatAndBits> all_formats() {
    std::vector<FormatAndBits> all;
    for (int format = HALYARD_CODES_Q8_0; format <= HALYARD_CODES_AWQ; format++) {
        const bool open = format >= HALYARD_CODES_COMPRESSED_TENSORS && format <= HALYARD_CODES_GPTQ_V2;
        for (const int bits : open ? std::vector<int>{4, 8} : std::vector<int>{0}) {
            all.push_back({static_cast<halyard_code_format>(format), bits});
        }
    }
    return all;
}
std::string name_of_format(const testing::TestParamInfo<FormatAndBits> &info) {
    constexpr const char *names[] = {"int8", "compressed_tensors", "gptq", "gptq_v2", "awq"};
    const int format = static_cast<int>(info.param.format);
    return std::string(format < HALYARD_CODES_INT8 ? block_formats[format].name : names[format - HALYARD_CODES_INT8]) +
           (info.param.bits != 0 ? "_" + std::to_string(info.param.bits) : "");
}

class Codes : public testing::TestWithParam<FormatAndBits> {
protected:
    CodeCase code_case(std::int64_t in, std::int64_t out, std::int64_t group, bool zeros, bool gated) const {
        CodeCase c;
        c.format = GetParam().format;
        c.bits = GetParam().bits;
        c.in = in;
        c.out = out;
        c.group = c.block() ? 0 : group;
        c.zeros = !c.block() && zeros;
        c.gated = gated;
        if (const BlockFormat *const f = c.block()) {
            c.in = (in + f->inputs - 1) / f->inputs * f->inputs;
        }
        return c;
    }

    static void expect_bytes(const CodeCase &c) {
        CodeSource source(c);
        const Bytes expected = source.expected.block();
        ASSERT_EQ(source.size(), static_cast<std::int64_t>(expected.size())) << c.describe();
        const PackedWeights packed = source.pack();
        ASSERT_NE(packed, nullptr) << c.describe();
        ASSERT_TRUE(same_bytes(expected, halyard_weights_data(packed.get()))) << c.describe();
        ASSERT_TRUE(source.intact()) << c.describe();
    }
};

TEST_P(Codes, BecomePanelsAsSpecified) {
    // Half a panel, a panel and more; a block of inputs and more.
    const std::vector<std::int64_t> outs = {1, 7, 8, 9, 16, 17, 50}, few_outs = {1, 9, 16, 17},
                                    ins = {1, 3, 16, 33, 512, 513, 700, 1300}, few_ins = {1, 33, 512, 513};
    for (const std::int64_t out : reduced ? few_outs : outs) {
        for (const std::int64_t in : reduced ? few_ins : ins) {
            for (const bool gated : {false, true}) {
                expect_bytes(code_case(in, out, in % 3 == 0 ? 32 : 0, (in + out) % 2 != 0, gated));
                if (HasFatalFailure()) {
                    return;
                }
            }
        }
    }
}

TEST_P(Codes, HaveTheirScalesInGroupsOfAnyMultipleOf16) {
    if (GetParam().format <= HALYARD_CODES_Q6_K) {
        return;  // which have their own
    }
    const std::vector<std::int64_t> groups = {0, 16, 32, 48, 64, 96, 128, 256, 272, 512, 1024, 1536, 2048},
                                    few = {0, 16, 96, 256, 272, 512, 1536};
    for (const std::int64_t group : reduced ? few : groups) {
        for (const Dtype scales : all_dtypes) {
            for (const bool zeros : {false, true}) {
                CodeCase c = code_case(reduced ? 600 : 1100, 20, group, zeros, false);
                c.scales = scales;
                expect_bytes(c);
                if (HasFatalFailure()) {
                    return;
                }
            }
        }
    }
}

TEST_P(Codes, MayHaveAnyPitchAndPlace) {
    for (const std::int64_t gap : {1, 3, 64}) {
        for (const auto placement : {Placement::starts_at_guard, Placement::ends_at_guard}) {
            for (const std::int64_t in : {30, 530}) {
                CodeCase c = code_case(in, 33, 16, true, true);
                c.gap = gap;
                c.placement = placement;
                expect_bytes(c);
                if (HasFatalFailure()) {
                    return;
                }
            }
        }
    }
}

TEST_P(Codes, GiveTheSameBytesForAnyThreads) {
    const CodeSource source(code_case(1030, reduced ? 300 : 700, 128, true, true));
    Bytes first;
    for (const halyard_isa isa : supported_isas()) {
        for (const int threads : {1, 2, 3, 7}) {
            const Context context(isa, threads);
            const PackedWeights packed = source.pack(context.get());
            ASSERT_NE(packed, nullptr);
            if (first.empty()) {
                first = bytes_of(packed.get());
            }
            ASSERT_TRUE(same_bytes(first, halyard_weights_data(packed.get())))
                << halyard_isa_name(isa) << ", " << threads;
        }
    }
}

// A row of x that is 1 at one input and 0 elsewhere has the weights of that input as its product.
TEST_P(Codes, HaveTheValuesOfTheFormat) {
    for (const bool gated : {false, true}) {
        for (const bool zeros : {false, true}) {
            const CodeCase c = code_case(reduced ? 290 : 560, 19, 48, zeros, gated);
            CodeSource source(c);
            const PackedWeights packed = source.pack();
            ASSERT_NE(packed, nullptr);
            const std::vector<float> gates = source.values(0), ups = gated ? source.values(1) : gates;
            for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{3}, c.in}) {
                Tensor x(Dtype::f32, compact_form({rows, c.in})), y(Dtype::f32, compact_form({rows, c.out}));
                for (std::int64_t first = 0; first + rows <= c.in; first += std::max<std::int64_t>(rows, 37)) {
                    x.fill([&](std::int64_t row, std::int64_t k) { return k == first + row ? 1.0 : 0.0; });
                    for (const halyard_isa isa : supported_isas()) {
                        const Context context(isa);
                        ASSERT_EQ(halyard_linear(context.get(), &x.view, packed.get(), nullptr, &y.view), HALYARD_OK)
                            << halyard_last_error();
                        for (std::int64_t row = 0; row < rows; row++) {
                            for (std::int64_t n = 0; n < c.out; n++) {
                                const auto at = static_cast<std::size_t>(n * c.in + first + row);
                                const float gate = gates[at] + 0.0f;  // a sum, which has no -0
                                const float w = gated ? gate * (ups[at] + 0.0f) : gate;
                                ASSERT_EQ(y.bits(row, n), bits_of(w))
                                    << c.describe() << ", input " << first + row << ", output " << n;
                            }
                        }
                    }
                }
            }
        }
    }
}

/** Every number is the reference's, `values`, rounded once to the dtype of y; NaN is any NaN. */
void expect_numbers(const CodeSource &source, const std::vector<float> &values, Dtype dtype, std::int64_t gap,
                    const halyard_context *context = nullptr) {
    const CodeCase &c = source.form;
    const Shape shape = {c.out, c.in};
    Tensor y(dtype, {shape, padded_strides(shape, gap), c.placement, 0, 0});
    ASSERT_EQ(halyard_dequantize(context, &source.codes[0], &y.view), HALYARD_OK) << halyard_last_error();
    for (std::int64_t n = 0; n < c.out; n++) {
        for (std::int64_t k = 0; k < c.in; k++) {
            const float number = values[static_cast<std::size_t>(n * c.in + k)];
            if (std::isnan(number)) {
                ASSERT_TRUE(std::isnan(y.get(n, k))) << c.describe() << ", input " << k << ", output " << n;
                continue;
            }
            ASSERT_EQ(y.bits(n, k), encode(dtype, static_cast<double>(number)))
                << c.describe() << " to " << name_of(dtype) << ", input " << k << ", output " << n;
        }
    }
    ASSERT_TRUE(y.surroundings_intact() && source.intact()) << c.describe();
}

TEST_P(Codes, AreDequantized) {
    const std::vector<std::int64_t> outs = {1, 9, 16, 17, 50}, ins = {1, 3, 33, 512, 513, 1300};
    for (const std::int64_t out : outs) {
        for (const std::int64_t in : ins) {
            CodeCase c = code_case(in, out, in % 3 == 0 ? 48 : 0, (in + out) % 2 != 0, false);
            c.scales = c.block() ? Dtype::f16 : all_dtypes[static_cast<std::size_t>(out) % std::size(all_dtypes)];
            c.gap = in % 4;
            c.placement = out % 3 == 0 ? Placement::starts_at_guard : Placement::ends_at_guard;
            CodeSource source(c);
            const std::vector<float> values = source.values(0);
            for (const Dtype dtype : all_dtypes) {
                expect_numbers(source, values, dtype, out % 4);
                if (HasFatalFailure()) {
                    return;
                }
            }
        }
    }
}

TEST_P(Codes, AreDequantizedByAnyThreads) {
    CodeSource source(code_case(600, 300, 128, true, false));
    const std::vector<float> values = source.values(0);
    for (const halyard_isa isa : supported_isas()) {
        for (const int threads : {1, 3}) {
            for (const Dtype dtype : all_dtypes) {
                expect_numbers(source, values, dtype, 0, Context(isa, threads).get());
                if (HasFatalFailure()) {
                    return;
                }
            }
        }
    }
}

TEST_P(Codes, AreDequantizedWithAnyScales) {
    for (const Dtype type : all_dtypes) {
        CodeCase c = code_case(768, 20, 32, true, false);
        if (c.block() && type != Dtype::f16) {
            continue;
        }
        c.scales = type;
        CodeSource source(c);
        const std::uint32_t infinity = encode(type, std::numeric_limits<double>::infinity()),
                            sign = type == Dtype::f32 ? 0x80000000 : 0x8000;
        const std::uint32_t special[] = {0, sign, 1, sign | 3, infinity - 1, infinity, sign | infinity, infinity + 1};
        std::size_t next = 0;
        for (std::int64_t n = 0; n < c.out; n++) {
            if (const BlockFormat *const f = c.block()) {
                for (std::int64_t block = 0; block < c.in / f->inputs; block++) {
                    std::uint8_t *const at = source.matrix[0]->at(n, block * f->bytes);
                    std::memcpy(at + f->scale, &special[next++ % 8], 2);
                    if (f->minimum >= 0) {
                        std::memcpy(at + f->minimum, &special[next++ % 7], 2);
                    }
                }
            } else {
                Tensor &scales = *source.scales[0];
                const bool transposed = c.format >= HALYARD_CODES_GPTQ;
                for (std::int64_t g = 0; g < c.in / c.group; g++) {
                    scales.set_bits(transposed ? g : n, transposed ? n : g, special[next++ % 8]);
                }
            }
        }
        const std::vector<float> values = source.values(0);
        for (const Dtype dtype : all_dtypes) {
            expect_numbers(source, values, dtype, 1);
            if (HasFatalFailure()) {
                return;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Codes, testing::ValuesIn(all_formats()), name_of_format);

TEST(CodesWeights, TellWhatTheyAre) {
    CodeCase c;
    c.format = HALYARD_CODES_GPTQ_V2;
    c.bits = 4;
    c.in = 96;
    c.out = 20;
    c.group = 48;
    c.zeros = c.gated = true;
    c.scales = Dtype::bf16;
    const PackedWeights packed = CodeSource(c).pack();
    ASSERT_NE(packed, nullptr);
    halyard_weights_info info{};
    ASSERT_EQ(halyard_weights_get_info(packed.get(), &info), HALYARD_OK);
    EXPECT_EQ(info.in_features, 96);
    EXPECT_EQ(info.out_features, 20);
    EXPECT_EQ(info.dtype.bits, 32);
    EXPECT_EQ(info.gated, 1);
    EXPECT_EQ(info.code_bits, 4);
    EXPECT_EQ(info.code_group, 16);
    EXPECT_EQ(info.scale_kind, HALYARD_SCALE_ZERO);
    EXPECT_EQ(info.scale_dtype.code, kDLBfloat);
}

TEST(CodesWeights, TakeVectorsWhereThereIsOneGroup) {
    for (const halyard_code_format format : {HALYARD_CODES_INT8, HALYARD_CODES_AWQ}) {
        CodeCase c;
        c.format = format;
        c.in = 70;
        c.out = 24;
        CodeSource source(c);
        DLTensor &scales = source.scales[0]->view;
        const Bytes expected = source.expected.block();
        std::int64_t shape[] = {24};
        scales.ndim = 1;
        scales.shape = shape;
        scales.strides = nullptr;
        const PackedWeights packed = source.pack();
        ASSERT_NE(packed, nullptr);
        EXPECT_TRUE(same_bytes(expected, halyard_weights_data(packed.get())));
    }
}

TEST(CodesWeights, TellTheirSizeFromShapesAlone) {
    CodeCase c;
    c.format = HALYARD_CODES_AWQ;
    c.in = 64;
    c.out = 24;
    c.group = 32;
    c.zeros = true;
    CodeSource source(c);
    std::int64_t strides[] = {-5, 9};
    for (DLTensor *const view : {&source.matrix[0]->view, &source.scales[0]->view, &source.zeros[0]->view}) {
        view->data = nullptr;
        view->strides = strides;
        view->byte_offset = 3;
    }
    // Two panels of 64 inputs: two groups with s and z, and codes.
    EXPECT_EQ(source.size(), 4096 + 2 * (2 * 16 * 3 + 32 + 64 * 16 / 2));
}

// ---- Bad arguments ----

class BadCodes : public testing::Test {
protected:
    static CodeCase gptq() {
        CodeCase c;
        c.format = HALYARD_CODES_GPTQ;
        c.bits = 4;
        c.in = 64;
        c.out = 24;
        c.group = 32;
        c.zeros = c.gated = true;
        return c;
    }

    /** All functions that see what is wrong refuse it; nothing is written. */
    testing::AssertionResult refuses(halyard_status status, const std::string &word, bool shape_is_wrong = true) {
        std::int64_t bytes = -77;
        if (shape_is_wrong) {
            const auto result =
                refused(halyard_weights_codes_size(codes, up, &bytes), status, "halyard_weights_codes_size", word);
            if (!result || bytes != -77) {
                return result ? testing::AssertionFailure() << "bytes was written" : result;
            }
        }
        if (word.rfind("codes", 0) == 0) {
            const auto result = refuses_to_dequantize(status, word);
            if (!result) {
                return result;
            }
        }
        for (char *const target : {place, static_cast<char *>(nullptr)}) {
            halyard_weights *weights = untouched;
            const auto result = refused(halyard_weights_pack_codes(nullptr, codes, up, target, room, &weights), status,
                                        "halyard_weights_pack_codes", word);
            if (!result || weights != untouched) {
                return result ? testing::AssertionFailure() << "weights was written" : result;
            }
        }
        return testing::AssertionSuccess();
    }
    testing::AssertionResult invalid(const std::string &word, bool shape_is_wrong = true) {
        return refuses(HALYARD_INVALID_ARGUMENT, word, shape_is_wrong);
    }

    testing::AssertionResult refuses_to_dequantize(halyard_status status, const std::string &word) {
        const std::vector<std::uint8_t> before = y.snapshot();
        const auto result = refused(halyard_dequantize(nullptr, codes, &y.view), status, "halyard_dequantize", word);
        return result && y.snapshot() != before ? testing::AssertionFailure() << "y was written" : result;
    }

    static inline halyard_weights *const untouched = reinterpret_cast<halyard_weights *>(64);
    CodeSource source{gptq()};
    halyard_codes *codes = &source.codes[0], *up = &source.codes[1];
    std::vector<char> memory = std::vector<char>(static_cast<std::size_t>(source.size()) + 64);
    char *const place = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64);
    std::int64_t room = source.size();
    Tensor y{Dtype::f32, compact_form({24, 64})};
};

TEST_F(BadCodes, Dequantized) {
    const auto invalid_y = [&](const std::string &word) {
        return refuses_to_dequantize(HALYARD_INVALID_ARGUMENT, word);
    };
    EXPECT_TRUE(refused(halyard_dequantize(nullptr, codes, nullptr), HALYARD_INVALID_ARGUMENT, "halyard_dequantize",
                        "y is null"));
    const DLTensor good = y.view;
    std::int64_t shape[] = {24, 64, 1};
    y.view.shape = shape;
    for (const std::int64_t extent : {0, 1, 23, 25}) {
        shape[0] = extent;
        EXPECT_TRUE(invalid_y("but must have shape [24, 64]"));
    }
    shape[0] = 64;
    shape[1] = 24;
    EXPECT_TRUE(invalid_y("y has rank 2 and width 24"));
    shape[0] = 24;
    shape[1] = 64;
    for (const int rank : {1, 3}) {
        y.view.ndim = rank;
        EXPECT_TRUE(invalid_y("y has rank " + std::to_string(rank)));
    }
    y.view = good;
    y.view.dtype.bits = 64;
    EXPECT_TRUE(refuses_to_dequantize(HALYARD_UNSUPPORTED, "y has dtype"));
    y.view = good;
    for (DLTensor *const tensor : {&source.matrix[0]->view, &source.scales[0]->view, &source.zeros[0]->view}) {
        void *const data = tensor->data;
        tensor->data = y.view.data;
        EXPECT_TRUE(invalid_y("overlaps"));
        tensor->data = data;
    }
    EXPECT_EQ(halyard_dequantize(nullptr, codes, &y.view), HALYARD_OK) << halyard_last_error();
}

// Memory of y may end where codes begin, at any byte.
TEST(CodesNumbers, MayLieBesideTheirCodes) {
    alignas(8) std::uint8_t memory[128 + 34 + 128] = {};
    std::int64_t shape[] = {1, 32}, bytes[] = {1, 34};
    halyard_codes codes{};
    codes.in_features = 32;
    codes.out_features = 1;
    for (const std::int64_t begin : {66, 67}) {
        DLTensor matrix{memory + begin, {kDLCPU, 0}, 2, u8, bytes, nullptr, 0};
        codes.matrix = &matrix;
        for (const std::int64_t at : {begin / 2 * 2 - 64, (begin + 35) / 2 * 2}) {
            DLTensor y{memory + at, {kDLCPU, 0}, 2, dlpack_type(Dtype::bf16), shape, nullptr, 0};
            EXPECT_EQ(halyard_dequantize(nullptr, &codes, &y), HALYARD_OK) << halyard_last_error();
        }
    }
}

TEST_F(BadCodes, Null) {
    EXPECT_TRUE(refused(halyard_weights_codes_size(codes, up, nullptr), HALYARD_INVALID_ARGUMENT,
                        "halyard_weights_codes_size", "bytes is null"));
    EXPECT_TRUE(refused(halyard_weights_pack_codes(nullptr, codes, up, nullptr, 0, nullptr), HALYARD_INVALID_ARGUMENT,
                        "halyard_weights_pack_codes", "weights is null"));
    codes = nullptr;
    EXPECT_TRUE(invalid("codes is null"));
}

TEST_F(BadCodes, Numbers) {
    const auto with = [&](auto halyard_codes::*field, auto value, const char *word) {
        for (halyard_codes *const each : {codes, up}) {
            const auto good = each->*field;
            each->*field = value;
            // The message about `up` may be that it is not as `codes` is.
            EXPECT_TRUE(invalid((each == codes ? "codes." : "up.") + std::string(word))) << word;
            each->*field = good;
        }
    };
    with(&halyard_codes::format, static_cast<halyard_code_format>(13), "format is 13");
    with(&halyard_codes::format, static_cast<halyard_code_format>(-1), "format is -1");
    for (const int bits : {0, 1, 3, 5, 16, -4}) {
        with(&halyard_codes::bits, bits, "bits");
    }
    for (const std::int64_t features : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 31}) {
        with(&halyard_codes::in_features, features, "in_features");
        with(&halyard_codes::out_features, features, "out_features");
    }
    for (const std::int64_t group : {-32, 1, 8, 17, 100}) {
        with(&halyard_codes::group, group, "group");
    }
    codes->format = HALYARD_CODES_AWQ;
    EXPECT_TRUE(invalid("codes.bits is 4, but must be 0 for AWQ"));
    codes->format = HALYARD_CODES_Q4_K;
    codes->bits = 0;
    EXPECT_TRUE(invalid("codes.group is 32, but must be 0 for Q4_K"));
    codes->group = 0;
    EXPECT_TRUE(invalid("codes.in_features is 64, but must be a multiple of 256 for Q4_K"));
    codes->in_features = 256;
    EXPECT_TRUE(invalid("codes.scales is there, but must be null: Q4_K"));
    codes->scales = nullptr;
    EXPECT_TRUE(invalid("codes.zeros is there, but must be null: Q4_K"));
    codes->zeros = nullptr;
    EXPECT_TRUE(refuses(HALYARD_UNSUPPORTED, "codes.matrix has dtype code 0, 32 bits, 1 lanes, but must be uint8"));
}

TEST_F(BadCodes, MissingTensors) {
    for (halyard_codes *const each : {codes, up}) {
        const std::string name = each == codes ? "codes" : "up";
        for (const DLTensor *halyard_codes::*const field : {&halyard_codes::matrix, &halyard_codes::scales}) {
            const DLTensor *const good = each->*field;
            each->*field = nullptr;
            EXPECT_TRUE(invalid(name + (field == &halyard_codes::matrix ? ".matrix is null" : ".scales is null")));
            each->*field = good;
        }
        const DLTensor *const good = each->zeros;
        each->zeros = nullptr;
        EXPECT_TRUE(invalid("both matrices or none must have zeros"));
        each->zeros = good;
    }
}

TEST_F(BadCodes, Tensors) {
    for (int m = 0; m < 2; m++) {
        const struct {
            DLTensor &view;
            const char *name, *shape;
            DLDataType other;
        } tensors[] = {{source.matrix[m]->view, "matrix", "[8, 24]", {kDLUInt, 32, 1}},
                       {source.scales[m]->view, "scales", "[2, 24]", {kDLFloat, 64, 1}},
                       {source.zeros[m]->view, "zeros", "[2, 3]", {kDLInt, 8, 1}}};
        for (const auto &t : tensors) {
            const std::string name = (m == 0 ? "codes." : "up.") + std::string(t.name);
            const DLTensor good = t.view;
            std::int64_t shape[3] = {good.shape[0], good.shape[1], 1}, strides[2] = {good.strides[0], 2};
            t.view.shape = shape;
            t.view.strides = nullptr;
            for (const int axis : {0, 1}) {
                for (const std::int64_t extent : {0, -1, 1, 200}) {
                    shape[axis] = extent;
                    EXPECT_TRUE(invalid(name)) << extent;
                    if (extent == 200) {
                        EXPECT_TRUE(invalid("but must have " + std::string(t.shape)));
                    }
                }
                shape[axis] = good.shape[axis];
            }
            for (const int rank : {0, 1, 3, 5}) {
                t.view.ndim = rank;
                EXPECT_TRUE(invalid(name)) << rank;
            }
            t.view.ndim = 2;
            t.view.shape = nullptr;
            EXPECT_TRUE(invalid(name));
            t.view = good;
            t.view.dtype = t.other;
            EXPECT_TRUE(refuses(HALYARD_UNSUPPORTED, name + " has dtype"));
            t.view.dtype = good.dtype;
            t.view.dtype.lanes = 2;
            EXPECT_TRUE(refuses(HALYARD_UNSUPPORTED, name + " has dtype"));
            t.view = good;
            // What only concerns the data.
            t.view.strides = strides;
            EXPECT_TRUE(invalid(name + " has stride 2", false));
            strides[0] = -1;
            strides[1] = 1;
            EXPECT_TRUE(invalid(name + " has stride -1", false));
            t.view = good;
            t.view.data = nullptr;
            EXPECT_TRUE(invalid(name + " has no data", false));
            t.view = good;
            t.view.byte_offset = 1;
            EXPECT_TRUE(invalid(name + " has misaligned data", false));
            t.view = good;
            t.view.device = {kDLVulkan, 0};
            EXPECT_TRUE(refuses(HALYARD_UNSUPPORTED, name + " is on device type", false));
            t.view = good;
        }
    }
    EXPECT_NE(source.pack(), nullptr);
}

TEST_F(BadCodes, Order) {
    IntegerTensor g_idx(i32, {64}, 0, Placement::ends_at_guard);
    for (std::int64_t k = 0; k < 64; k++) {
        *g_idx.at(k, 0) = static_cast<std::uint8_t>(k / 32);
    }
    IntegerTensor of_other(i32, {64}, 0, Placement::ends_at_guard);
    std::copy_n(g_idx.at(0, 0), 4 * 64, of_other.at(0, 0));
    for (halyard_codes *const each : {codes, up}) {
        const std::string name = each == codes ? "codes.g_idx" : "up.g_idx";
        (each == codes ? up : codes)->g_idx = &of_other.view;
        each->g_idx = &g_idx.view;
        EXPECT_NE(source.pack(), nullptr);
        *g_idx.at(33, 0) = 2;
        EXPECT_TRUE(invalid(name + " has group 2 for input 33, but must have 0 to 1", false));
        *g_idx.at(33, 0) = 1;
        g_idx.view.dtype.bits = 64;
        EXPECT_TRUE(refuses(HALYARD_UNSUPPORTED, name + " has dtype"));
        g_idx.view.dtype = i32;
        std::int64_t shape[] = {63};
        const std::int64_t *const good = g_idx.view.shape;
        g_idx.view.shape = shape;
        EXPECT_TRUE(invalid(name + " has rank 1 and width 63, but must have shape [64]"));
        g_idx.view.shape = const_cast<std::int64_t *>(good);
    }
    up->g_idx = nullptr;
    EXPECT_TRUE(invalid("up.g_idx is null, but codes.g_idx is there: both matrices or none"));
    CodeCase c = gptq();
    c.format = HALYARD_CODES_AWQ;
    c.bits = 0;
    CodeSource awq(c);
    codes = &awq.codes[0];
    up = &awq.codes[1];
    codes->g_idx = &g_idx.view;
    EXPECT_TRUE(invalid("codes.g_idx is there, but must be null: AWQ"));
}

TEST_F(BadCodes, DifferingScales) {
    CodeCase c = gptq();
    c.scales = Dtype::f32;
    CodeSource other(c);
    up = &other.codes[1];
    EXPECT_TRUE(refuses(HALYARD_UNSUPPORTED, "up.scales has dtype f32, but must have the dtype of codes.scales"));
}

TEST_F(BadCodes, Memory) {
    halyard_weights *weights = untouched;
    const auto pack_at = [&](void *target, std::int64_t bytes) {
        return halyard_weights_pack_codes(nullptr, codes, up, target, bytes, &weights);
    };
    const std::string function = "halyard_weights_pack_codes";
    EXPECT_TRUE(refused(pack_at(place + 4, room), HALYARD_INVALID_ARGUMENT, function, "memory is misaligned"));
    EXPECT_TRUE(refused(pack_at(place, room - 1), HALYARD_INVALID_ARGUMENT, function, "bytes is"));
    EXPECT_EQ(weights, untouched);
    // Sources within the memory.
    for (int m = 0; m < 2; m++) {
        for (DLTensor *const view : {&source.matrix[m]->view, &source.scales[m]->view, &source.zeros[m]->view}) {
            const DLTensor good = *view;
            for (const std::int64_t offset : {std::int64_t{0}, room - 4}) {
                view->data = place + offset;
                EXPECT_TRUE(refused(pack_at(place, room), HALYARD_INVALID_ARGUMENT, function, "memory overlaps"));
            }
            *view = good;
        }
    }
    EXPECT_EQ(weights, untouched);
    ASSERT_EQ(pack_at(place, room), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(halyard_weights_data(weights), place);
    EXPECT_TRUE(same_bytes(source.expected.block(), place));
    halyard_weights_destroy(weights);
}

// ---- Scales that no weight can have ----

class BadScales : public testing::TestWithParam<FormatAndBits> {};

/** Packing fails, and what it has left in memory of the caller is no block. */
testing::AssertionResult leaves_nothing_to_load(const CodeSource &source) {
    const AlignedMemory memory(source.size());
    halyard_weights *weights = nullptr;
    const halyard_status packed =
        halyard_weights_pack_codes(nullptr, &source.codes[0], source.up(), memory.data(), memory.size(), &weights);
    if (packed != HALYARD_INVALID_ARGUMENT || weights != nullptr) {
        return testing::AssertionFailure() << "packed";
    }
    return memory.holds_no_weights();
}

TEST_P(BadScales, AreRefused) {
    CodeCase c;
    c.format = GetParam().format;
    c.bits = GetParam().bits;
    c.in = 768;
    c.out = 20;
    c.group = c.block() ? 0 : 32;
    c.gated = true;
    for (const Dtype type : c.block() ? std::vector<Dtype>{Dtype::f16}
                                      : std::vector<Dtype>(std::begin(all_dtypes), std::end(all_dtypes))) {
        c.scales = type;
        CodeSource source(c);
        const std::uint32_t infinity = encode(type, std::numeric_limits<double>::infinity()), nan = infinity + 1,
                            sign = type == Dtype::f32 ? 0x80000000 : 0x8000,
                            largest = encode(type, type == Dtype::f16 ? 65504 : 0x1p100);
        for (int m = 0; m < 2; m++) {
            // The first and the last, and minima too.
            std::vector<void *> places;
            if (const BlockFormat *const f = c.block()) {
                std::uint8_t *const last = source.matrix[m]->at(19, (768 / f->inputs - 1) * f->bytes);
                places = {source.matrix[m]->at(0, 0) + f->scale, last + f->scale};
                if (f->minimum >= 0) {
                    places.push_back(last + f->minimum);
                }
            } else {
                places = {source.scales[m]->at(0, 0),
                          source.scales[m]->at(source.scales[m]->rows() - 1, source.scales[m]->width() - 1)};
            }
            const std::size_t size = size_of(type);
            for (void *const place : places) {
                std::uint32_t good = 0;
                std::memcpy(&good, place, size);
                std::vector<std::uint32_t> bad = {infinity, infinity | sign, nan, nan | sign};
                if (type != Dtype::f16) {
                    bad.push_back(largest + 1);
                    bad.push_back((largest + 1) | sign);
                }
                halyard_weights *weights = nullptr;
                for (const std::uint32_t bits : bad) {
                    std::memcpy(place, &bits, size);
                    EXPECT_TRUE(leaves_nothing_to_load(source));
                    EXPECT_TRUE(refused(
                        halyard_weights_pack_codes(nullptr, &source.codes[0], source.up(), nullptr, 0, &weights),
                        HALYARD_INVALID_ARGUMENT, "halyard_weights_pack_codes",
                        (m == 0 ? "codes." : "up.") + std::string(c.block() ? "matrix" : "scales") +
                            " holds scales that are NaN or Inf"));
                    EXPECT_EQ(weights, nullptr);
                }
                for (const std::uint32_t bits : {largest, largest | sign, 0u, sign, 1u}) {
                    std::memcpy(place, &bits, size);
                    EXPECT_NE(source.pack(), nullptr);
                }
                std::memcpy(place, &good, size);
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, BadScales, testing::ValuesIn(all_formats()), name_of_format);

// ---- What other programs have made: tests/data/codes ----

class Fixture : public testing::TestWithParam<std::string> {};

/** Text of a file of fixtures: names, each with its numbers in hexadecimal. */
class FixtureFile {
public:
    explicit FixtureFile(const std::string &name) {
        std::ifstream file(HALYARD_TEST_DATA "/codes/" + name + ".txt");
        std::string line;
        while (std::getline(file, line)) {
            if (!line.empty() && line[0] != '#') {
                const std::size_t space = line.find(' ');
                fields[line.substr(0, space)] += line.substr(space + 1);
            }
        }
    }
    std::int64_t number(const std::string &field) { return std::stoll(fields.at(field)); }
    /** Bytes, first to last. */
    Bytes bytes(const std::string &field) {
        const std::string &text = fields.at(field);
        Bytes result;
        for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
            result.push_back(static_cast<std::uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
        }
        return result;
    }
    bool has(const std::string &field) const { return fields.count(field) != 0; }

private:
    std::map<std::string, std::string> fields;
};

TEST_P(Fixture, HasTheSameWeights) {
    FixtureFile file(GetParam());
    ASSERT_TRUE(file.has("values")) << GetParam();
    halyard_codes codes{};
    codes.format = static_cast<halyard_code_format>(file.number("format"));
    codes.bits = static_cast<int>(file.number("bits"));
    codes.in_features = file.number("in");
    codes.out_features = file.number("out");
    codes.group = file.number("group");
    const std::int64_t in = codes.in_features, out = codes.out_features;
    std::map<std::string, Bytes> bytes;
    std::map<std::string, std::array<std::int64_t, 2>> shapes;
    std::map<std::string, DLTensor> tensors;
    const auto tensor = [&](const std::string &name, DLDataType type) -> const DLTensor * {
        if (!file.has(name)) {
            return nullptr;
        }
        bytes[name] = file.bytes(name);
        shapes[name] = {file.number(name + "_rows"), 0};
        shapes[name][1] = static_cast<std::int64_t>(bytes[name].size()) / shapes[name][0] / (type.bits / 8);
        DLTensor &view = tensors[name];
        view.data = bytes[name].data();
        view.device = {kDLCPU, 0};
        view.ndim = 2;
        view.dtype = type;
        view.shape = shapes[name].data();
        return &view;
    };
    const DLDataType element = codes.format <= HALYARD_CODES_Q6_K ? u8 : codes.format == HALYARD_CODES_INT8 ? i8 : i32;
    codes.matrix = tensor("matrix", element);
    codes.scales = tensor("scales", dlpack_type(Dtype::f32));
    codes.zeros = tensor("zeros", element);
    halyard_weights *weights = nullptr;
    ASSERT_EQ(halyard_weights_pack_codes(nullptr, &codes, nullptr, nullptr, 0, &weights), HALYARD_OK)
        << halyard_last_error();
    const PackedWeights packed(weights);
    const Bytes values = file.bytes("values");
    ASSERT_EQ(values.size(), static_cast<std::size_t>(4 * in * out));
    Tensor numbers(Dtype::f32, compact_form({out, in}));
    ASSERT_EQ(halyard_dequantize(nullptr, &codes, &numbers.view), HALYARD_OK) << halyard_last_error();
    ASSERT_EQ(std::memcmp(numbers.at(0, 0), values.data(), values.size()), 0);
    Tensor x(Dtype::f32, compact_form({in, in})), y(Dtype::f32, compact_form({in, out}));
    x.fill([](std::int64_t row, std::int64_t k) { return row == k ? 1.0 : 0.0; });
    ASSERT_EQ(halyard_linear(nullptr, &x.view, packed.get(), nullptr, &y.view), HALYARD_OK) << halyard_last_error();
    for (std::int64_t k = 0; k < in; k++) {
        for (std::int64_t n = 0; n < out; n++) {
            const auto expected = load_from<float>(values.data(), static_cast<std::size_t>(4 * (n * in + k)));
            if (codes.scales == nullptr) {
                ASSERT_EQ(y.bits(k, n), bits_of(expected + 0.0f)) << "input " << k << ", output " << n;
                continue;
            }
            // s c and the offset are rounded, which is exact with scales of 16 bits.
            const std::int64_t groups = shapes["scales"][1];
            const auto s =
                load_from<float>(bytes["scales"].data(), static_cast<std::size_t>(4 * (n * groups + k / codes.group)));
            ASSERT_LE(std::abs(y.get(k, n) - static_cast<double>(expected)),
                      std::abs(static_cast<double>(s)) * std::exp2(codes.bits - 23))
                << "input " << k << ", output " << n;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Fixture,
                         testing::Values("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k",
                                         "compressed_tensors_4", "compressed_tensors_8"),
                         [](const auto &info) { return info.param; });

}  // namespace
}  // namespace halyard::tests
