// See code_source.h.
#include "support/code_source.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace halyard::tests {

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

namespace {

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

Pieces halves(std::int64_t first, std::int64_t j, std::int64_t count) {
    return {{first + j / (2 * count) * count + j % count, static_cast<int>(j % (2 * count) / count * 4), 4, 0}};
}
Pieces with_fifth(Pieces pieces, std::int64_t byte, std::int64_t bit) {
    pieces.push_back({byte, static_cast<int>(bit), 1, 4});
    return pieces;
}

}  // namespace

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

namespace {

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

}  // namespace

// ---- Sources ----

CodeSource::CodeSource(const CodeCase &c, std::uint64_t seed) : form(c), expected(CodedMatrix::random(c.form(), seed)) {
    for (int m = 0; m <= (c.gated ? 1 : 0); m++) {
        c.block() ? make_blocks(m) : make_tensors(m);
    }
}

bool CodeSource::intact() const {
    for (const auto &list : {&matrix, &zeros}) {
        for (const auto &tensor : *list) {
            if (tensor && !tensor->intact()) {
                return false;
            }
        }
    }
    return true;
}

std::int64_t CodeSource::size() const {
    std::int64_t bytes = -1;
    EXPECT_EQ(halyard_weights_codes_size(&codes[0], up(), &bytes), HALYARD_OK) << halyard_last_error();
    return bytes;
}

PackedWeights CodeSource::pack(const halyard_context *context) const {
    halyard_weights *weights = nullptr;
    EXPECT_EQ(halyard_weights_pack_codes(context, &codes[0], up(), nullptr, 0, &weights), HALYARD_OK)
        << halyard_last_error();
    return PackedWeights(weights);
}

std::vector<float> CodeSource::values(int m) {
    std::vector<float> all;
    all.reserve(static_cast<std::size_t>(form.out * form.in));
    for (std::int64_t n = 0; n < form.out; n++) {
        for (std::int64_t k = 0; k < form.in; k++) {
            all.push_back(value(m, k, n));
        }
    }
    return all;
}

float CodeSource::value(int m, std::int64_t k, std::int64_t n) {
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

CodeSource::Place CodeSource::place(int m, std::int64_t k, std::int64_t n, bool zero) {
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

std::uint32_t CodeSource::read(const std::uint8_t *from, const Place &p) const {
    return static_cast<std::uint32_t>(from[p.byte + p.shift / 8] >> p.shift % 8) & ((1u << form.code_bits()) - 1);
}

void CodeSource::write(std::uint8_t *to, const Place &p, std::uint32_t value) const {
    std::uint8_t &byte = to[p.byte + p.shift / 8];
    byte = static_cast<std::uint8_t>(byte | (value & ((1u << form.code_bits()) - 1)) << p.shift % 8);
}

void CodeSource::describe(int m) {
    codes[m].format = form.format;
    codes[m].bits = form.bits;
    codes[m].in_features = form.in;
    codes[m].out_features = form.out;
    codes[m].group = form.group;
    codes[m].matrix = &matrix[m]->view;
}

void CodeSource::make_blocks(int m) {
    const BlockFormat &f = *form.block();
    matrix[m] =
        std::make_unique<IntegerTensor>(u8, Shape{form.out, form.in / f.inputs * f.bytes}, form.gap, form.placement);
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

void CodeSource::make_tensors(int m) {
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
    scales[m] = std::make_unique<Tensor>(form.scales,
                                         Form{of_scales, padded_strides(of_scales, form.gap), form.placement, 0, 0});
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

}  // namespace halyard::tests
