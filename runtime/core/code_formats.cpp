// The formats, read one k block of 16 outputs at a time. Bytes are little-endian; sources of what is read:
//
//   blocks of GGUF      ggml, src/ggml-common.h (block_q8_0 ...) and dequantize_row_q8_0 ... in src/ggml-quants.c
//   compressed-tensors  pack_to_int32 in compressors/pack_quantized/helpers.py
//   GPTQ                pack in AutoGPTQ, nn_modules/qlinear
//   AWQ                 WQLinear_GEMM.from_linear in AutoAWQ, modules/linear/gemm.py
#include "core/code_formats.h"

#include <cstring>
#include <iterator>
#include <type_traits>

namespace halyard {
namespace {

// ---- Words of codes ----

using Bytes = uint8_t __attribute__((vector_size(16)));
using Words = uint32_t __attribute__((vector_size(16)));

template<typename Vector>
Vector load(const void *from) {
    Vector vector;
    memcpy(&vector, from, sizeof(vector));
    return vector;
}

template<typename Vector>
void store(const Vector &vector, void *to) {
    memcpy(to, &vector, sizeof(vector));
}

uint32_t word_at(const char *data) {
    return load<uint32_t>(data);
}

/** Words of a k block, output by output. */
using OutputWords = uint32_t[panel_width][k_block / 4];

/** Words of two vectors, the second one's counting from 4 on. */
template<int i, int j, int k, int l>
Words shuffled(const Words &a, const Words &b) {
#if __has_builtin(__builtin_shufflevector)
    return __builtin_shufflevector(a, b, i, j, k, l);
#else  // GCC before 12
    return __builtin_shuffle(a, b, Words{i, j, k, l});
#endif
}

/** To words [rows][16]. */
void transpose(const OutputWords &from, int64_t rows, uint32_t (*to)[panel_width]) {
    for (int64_t row = 0; row < rows / 4 * 4; row += 4) {
        for (int column = 0; column < panel_width; column += 4) {
            const auto a = load<Words>(&from[column][row]), b = load<Words>(&from[column + 1][row]),
                       c = load<Words>(&from[column + 2][row]), d = load<Words>(&from[column + 3][row]);
            const Words ab01 = shuffled<0, 4, 1, 5>(a, b), cd01 = shuffled<0, 4, 1, 5>(c, d),
                        ab23 = shuffled<2, 6, 3, 7>(a, b), cd23 = shuffled<2, 6, 3, 7>(c, d);
            store(shuffled<0, 1, 4, 5>(ab01, cd01), &to[row][column]);
            store(shuffled<2, 3, 6, 7>(ab01, cd01), &to[row + 1][column]);
            store(shuffled<0, 1, 4, 5>(ab23, cd23), &to[row + 2][column]);
            store(shuffled<2, 3, 6, 7>(ab23, cd23), &to[row + 3][column]);
        }
    }
    for (int64_t row = rows / 4 * 4; row < rows; row++) {
        for (int column = 0; column < panel_width; column++) {
            to[row][column] = from[column][row];
        }
    }
}

/** 32 codes of 4 bits, in bytes in the order of their inputs, as words. */
Words joined(const Bytes &first, const Bytes &second) {
    const auto a = load<Words>(&first), b = load<Words>(&second);
    return shuffled<0, 2, 4, 6>(a, b) | shuffled<1, 3, 5, 7>(a, b) << 4;
}

/** The low four of 8 halves of bytes to the lower halves of 4 bytes. */
uint32_t spread(uint32_t halves) {
    halves = (halves | halves << 8) & 0x00ff00ff;
    return (halves | halves << 4) & 0x0f0f0f0f;
}

/** A word of codes that lie in the order of their inputs, the first in the lowest bits, as panels have it. */
template<int bits>
uint32_t as_in_panels(uint32_t word) {
    return bits == 8 ? word : spread(word & 0xffff) | spread(word >> 16) << 4;
}

// ---- GGUF ----

/** Where the numbers of one block go: words of its codes, and the rest in columns 16 elements apart. */
struct BlockTarget {
    const CodeTarget &all;
    int64_t column, number;  // of the block in the k block
    uint32_t *words;

    void scale(const uint8_t *f16) const { memcpy(all.scales + place() * 2, f16, 2); }
    void minimum(const uint8_t *f16) const { memcpy(all.minima + place() * 2, f16, 2); }
    /** One of several groups of a block. */
    uint8_t &factor(int group, int groups) const { return all.factors[place(group, groups)]; }
    uint8_t &zero(int group, int groups) const { return all.zeros[place(group, groups)]; }
    /** 32 codes of 4 bits and 16 of 8 bits, in the order of inputs. */
    void codes4(int input, const Bytes &first, const Bytes &second) const {
        store(joined(first, second), words + input / 8);
    }
    void codes8(int input, const Bytes &codes) const { store(codes, words + input / 4); }

private:
    int64_t place(int group = 0, int groups = 1) const { return (number * groups + group) * panel_width + column; }
};

/** 16 in each byte of which the bit is set, else 0. */
Bytes sixteens(const uint8_t *bits) {
    using Halves = uint64_t __attribute__((vector_size(16)));
    constexpr uint64_t in_each_byte = 0x0101010101010101, bit_of_byte = 0x8040201008040201;
    const Halves set = {bits[0] * in_each_byte & bit_of_byte, bits[1] * in_each_byte & bit_of_byte};
    return Bytes(load<Bytes>(&set) != 0) & 16;
}

void read_q8_0(const uint8_t *block, const BlockTarget &to) {
    to.scale(block);
    to.codes8(0, load<Bytes>(block + 2) ^ 128);
    to.codes8(16, load<Bytes>(block + 18) ^ 128);
}

void read_q4_0(const uint8_t *block, const BlockTarget &to) {
    const auto packed = load<Bytes>(block + 2);
    to.scale(block);
    to.codes4(0, packed & 15, packed >> 4);
}

void read_q4_1(const uint8_t *block, const BlockTarget &to) {
    const auto packed = load<Bytes>(block + 4);
    to.scale(block);
    to.minimum(block + 2);
    to.codes4(0, packed & 15, packed >> 4);
}

void read_q5_0(const uint8_t *block, const BlockTarget &to) {
    const auto packed = load<Bytes>(block + 6);
    constexpr int offset = 128 - 16;
    to.scale(block);
    to.codes8(0, ((packed & 15) | sixteens(block + 2)) + offset);
    to.codes8(16, (packed >> 4 | sixteens(block + 4)) + offset);
}

void read_q5_1(const uint8_t *block, const BlockTarget &to) {
    const auto packed = load<Bytes>(block + 8);
    to.scale(block);
    to.minimum(block + 2);
    to.codes8(0, (packed & 15) | sixteens(block + 4));
    to.codes8(16, packed >> 4 | sixteens(block + 6));
}

/** d, dmin, and for 8 groups of 32 inputs sc and mn of 6 bits in 12 bytes. */
void read_two_levels(const uint8_t *block, const BlockTarget &to) {
    to.scale(block);
    to.minimum(block + 2);
    const uint8_t *const s = block + 4;
    for (int i = 0; i < 4; i++) {
        to.factor(i, 8) = s[i] & 63;
        to.zero(i, 8) = s[4 + i] & 63;
        to.factor(4 + i, 8) = static_cast<uint8_t>((s[8 + i] & 15) | s[i] >> 6 << 4);
        to.zero(4 + i, 8) = static_cast<uint8_t>(s[8 + i] >> 4 | s[4 + i] >> 6 << 4);
    }
}

void read_q4_k(const uint8_t *block, const BlockTarget &to) {
    read_two_levels(block, to);
    for (int i = 0; i < 4; i++) {
        const auto first = load<Bytes>(block + 16 + 32 * i), second = load<Bytes>(block + 32 + 32 * i);
        to.codes4(64 * i, first & 15, second & 15);
        to.codes4(64 * i + 32, first >> 4, second >> 4);
    }
}

void read_q5_k(const uint8_t *block, const BlockTarget &to) {
    read_two_levels(block, to);
    for (int part = 0; part < 32; part += 16) {
        const auto fifth_bits = load<Bytes>(block + 16 + part);
        for (int i = 0; i < 4; i++) {
            const auto packed = load<Bytes>(block + 48 + 32 * i + part);
            to.codes8(64 * i + part, (packed & 15) | (fifth_bits >> 2 * i & 1) << 4);
            to.codes8(64 * i + 32 + part, packed >> 4 | (fifth_bits >> (2 * i + 1) & 1) << 4);
        }
    }
}

void read_q6_k(const uint8_t *block, const BlockTarget &to) {
    to.scale(block + 208);
    for (int i = 0; i < 16; i++) {
        to.factor(i, 16) = block[192 + i];
    }
    constexpr int offset = 128 - 32;
    for (int half = 0; half < 2; half++) {
        for (int part = 0; part < 32; part += 16) {
            const auto low = load<Bytes>(block + 64 * half + part),
                       low_after = load<Bytes>(block + 64 * half + 32 + part),
                       high = load<Bytes>(block + 128 + 32 * half + part);
            const int input = 128 * half + part;
            to.codes8(input, ((low & 15) | (high & 3) << 4) + offset);
            to.codes8(input + 32, ((low_after & 15) | (high >> 2 & 3) << 4) + offset);
            to.codes8(input + 64, (low >> 4 | (high >> 4 & 3) << 4) + offset);
            to.codes8(input + 96, (low_after >> 4 | high >> 6 << 4) + offset);
        }
    }
}

template<void (*read_block)(const uint8_t *block, const BlockTarget &to), int bits, int block_inputs, int block_bytes>
void read_blocks(const CodeSource &source, int64_t column, int64_t columns, int64_t k, int64_t inputs,
                 const CodeTarget &target) {
    constexpr int block_words = block_inputs * bits / 32;
    OutputWords words = {};
    for (int64_t c = 0; c < columns; c++) {
        const auto *block =
            reinterpret_cast<const uint8_t *>(source.codes.at(column + c, k / block_inputs * block_bytes));
        for (int64_t number = 0; number < inputs / block_inputs; number++, block += block_bytes) {
            read_block(block, {target, c, number, words[c] + number * block_words});
        }
    }
    transpose(words, inputs / block_inputs * block_words, target.words);
}

// ---- Scales and zeros in tensors of their own ----

template<typename Bits>
void read_group(const CodeTensor &scales, int64_t column, int64_t columns, int64_t group, char *to) {
    for (int64_t c = 0; c < columns; c++) {
        memcpy(to + c * sizeof(Bits), scales.at(column + c, group), sizeof(Bits));
    }
}

/** Scales, and zeros that zero(output, group) gives, once for each group of the packed form. */
template<typename Zero>
void read_scales(const CodeSource &source, int64_t column, int64_t columns, int64_t k, int64_t inputs,
                 const CodeTarget &target, const Zero &zero) {
    const CodeLayout &layout = source.layout;
    const bool is_f32 = layout.scale_dtype == DType::f32;
    for (int64_t i = 0; i < layout.groups(inputs); i++) {
        const int64_t group = (k + i * layout.block_group()) / source.group;
        char *const to = target.scales + i * panel_width * size_of(layout.scale_dtype);
        (is_f32 ? read_group<uint32_t> : read_group<uint16_t>)(source.scales, column, columns, group, to);
        for (int64_t c = 0; c < columns && layout.kind == ScaleKind::zero; c++) {
            target.zeros[i * panel_width + c] = static_cast<uint8_t>(zero(column + c, group));
        }
    }
}

/** Zeros in words that join those of outputs, the one of output n at bits * place[n], counted within a word. */
template<int bits, uint32_t added = 0>
struct JoinedZeros {
    const CodeSource &source;
    const int (&place)[8];

    /** As stored, and what is added modulo 2^bits. */
    uint32_t operator()(int64_t output, int64_t group) const {
        constexpr int in_word = 32 / bits;
        const uint32_t word = word_at(source.zeros.at(output / in_word, group));
        return ((word >> bits * place[output % in_word]) + added) & ((1u << bits) - 1);
    }
};

constexpr int in_order[8] = {0, 1, 2, 3, 4, 5, 6, 7};
/** Where AWQ has output n of 8. */
constexpr int awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7};

void read_int8(const CodeSource &source, int64_t column, int64_t columns, int64_t k, int64_t inputs,
               const CodeTarget &target) {
    read_scales(source, column, columns, k, inputs, target, [&](int64_t output, int64_t group) {
        return static_cast<uint8_t>(*source.zeros.at(output, group)) ^ 128;
    });
    OutputWords words = {};
    for (int64_t c = 0; c < columns; c++) {
        memcpy(words[c], source.codes.at(column + c, k), inputs);
        for (uint32_t &four : words[c]) {
            four ^= 0x80808080;
        }
    }
    transpose(words, (inputs + 3) / 4, target.words);
}

template<int bits>
void read_compressed_tensors(const CodeSource &source, int64_t column, int64_t columns, int64_t k, int64_t inputs,
                             const CodeTarget &target) {
    read_scales(source, column, columns, k, inputs, target, JoinedZeros<bits>{source, in_order});
    constexpr int in_word = 32 / bits;
    const int64_t rows = (inputs + in_word - 1) / in_word;
    OutputWords words = {};
    for (int64_t c = 0; c < columns; c++) {
        const char *const data = source.codes.at(column + c, k / in_word);
        for (int64_t row = 0; row < rows; row++) {
            words[c][row] = as_in_panels<bits>(word_at(data + 4 * row));
        }
    }
    transpose(words, rows, target.words);
}

template<int bits, uint32_t added_to_zeros>
void read_gptq(const CodeSource &source, int64_t column, int64_t columns, int64_t k, int64_t inputs,
               const CodeTarget &target) {
    read_scales(source, column, columns, k, inputs, target, JoinedZeros<bits, added_to_zeros>{source, in_order});
    constexpr int in_word = 32 / bits;
    for (int64_t row = 0; row * in_word < inputs; row++) {
        const char *const data = source.codes.at(column, k / in_word + row);
        for (int64_t c = 0; c < columns; c++) {
            target.words[row][c] = as_in_panels<bits>(word_at(data + 4 * c));
        }
    }
}

/** Exchanges the bits of a that are in the mask when shifted down with those of b. */
void exchange(uint32_t *a, uint32_t *b, int64_t count, int apart, uint32_t mask) {
    for (int64_t i = 0; i < count; i++) {
        const uint32_t differing = (a[i] >> apart ^ b[i]) & mask;
        b[i] ^= differing;
        a[i] ^= differing << apart;
    }
}

void read_awq(const CodeSource &source, int64_t column, int64_t columns, int64_t k, int64_t inputs,
              const CodeTarget &target) {
    read_scales(source, column, columns, k, inputs, target, JoinedZeros<4>{source, awq_place});
    // Two words have 16 outputs of an input: of 8 inputs these are two matrices of 8 x 8 codes to be transposed.
    constexpr int side = 8, halves = panel_width / side;
    const int64_t octets = (inputs + side - 1) / side;
    uint32_t rows[side][k_block / side * halves] = {};
    const char *const data = source.codes.at(column / side, k);
    const auto gather = [&](auto bytes) {
        for (uint64_t i = 0; i < static_cast<uint64_t>(inputs); i++) {
            memcpy(&rows[i % side][i / side * halves], data + i * source.codes.input_pitch, bytes);
        }
    };
    if (columns > side) {
        gather(std::integral_constant<size_t, 8>());
    } else {
        gather(std::integral_constant<size_t, 4>());
    }
    constexpr uint32_t masks[] = {0, 0x0f0f0f0f, 0x00ff00ff, 0, 0x0000ffff};
    for (int apart = side / 2; apart > 0; apart /= 2) {
        for (int i = 0; i < side; i++) {
            if ((i & apart) == 0) {
                exchange(rows[i], rows[i + apart], octets * halves, 4 * apart, masks[apart]);
            }
        }
    }
    for (int64_t octet = 0; octet < octets; octet++) {
        for (int c = 0; c < panel_width; c++) {
            target.words[octet][c] = as_in_panels<4>(rows[awq_place[c % side]][octet * halves + c / side]);
        }
    }
}

template<void (*read4)(const CodeSource &, int64_t, int64_t, int64_t, int64_t, const CodeTarget &),
         void (*read8)(const CodeSource &, int64_t, int64_t, int64_t, int64_t, const CodeTarget &)>
void read_either(const CodeSource &source, int64_t column, int64_t columns, int64_t k, int64_t inputs,
                 const CodeTarget &target) {
    (source.layout.bits == 4 ? read4 : read8)(source, column, columns, k, inputs, target);
}

// ---- The table, in the order of halyard_code_format ----

constexpr DLDataType i8 = {kDLInt, 8, 1}, u8 = {kDLUInt, 8, 1}, i32 = {kDLInt, 32, 1};

constexpr CodeFormat formats[] = {
    {"Q8_0", ScaleKind::plain, 8, 32, 32, 34, u8, false, false, read_blocks<read_q8_0, 8, 32, 34>},
    {"Q4_0", ScaleKind::plain, 4, 32, 32, 18, u8, false, false, read_blocks<read_q4_0, 4, 32, 18>},
    {"Q4_1", ScaleKind::minimum, 4, 32, 32, 20, u8, false, false, read_blocks<read_q4_1, 4, 32, 20>},
    {"Q5_0", ScaleKind::plain, 8, 32, 32, 22, u8, false, false, read_blocks<read_q5_0, 8, 32, 22>},
    {"Q5_1", ScaleKind::minimum, 8, 32, 32, 24, u8, false, false, read_blocks<read_q5_1, 8, 32, 24>},
    {"Q4_K", ScaleKind::two_levels, 4, 32, 256, 144, u8, false, false, read_blocks<read_q4_k, 4, 256, 144>},
    {"Q5_K", ScaleKind::two_levels, 8, 32, 256, 176, u8, false, false, read_blocks<read_q5_k, 8, 256, 176>},
    {"Q6_K", ScaleKind::two_levels_signed, 8, 16, 256, 210, u8, false, false, read_blocks<read_q6_k, 8, 256, 210>},
    {"int8", ScaleKind::zero, 8, 0, 0, 0, i8, false, false, read_int8},
    {"compressed-tensors", ScaleKind::zero, 0, 0, 0, 0, i32, false, false,
     read_either<read_compressed_tensors<4>, read_compressed_tensors<8>>},
    {"GPTQ", ScaleKind::zero, 0, 0, 0, 0, i32, true, false, read_either<read_gptq<4, 1>, read_gptq<8, 1>>},
    {"GPTQ v2", ScaleKind::zero, 0, 0, 0, 0, i32, true, false, read_either<read_gptq<4, 0>, read_gptq<8, 0>>},
    {"AWQ", ScaleKind::zero, 4, 0, 0, 0, i32, true, true, read_awq},
};
static_assert(std::size(formats) == HALYARD_CODES_AWQ + 1);

}  // namespace

const CodeFormat *code_format(halyard_code_format format) {
    const auto number = static_cast<unsigned>(format);
    return number < std::size(formats) ? &formats[number] : nullptr;
}

}  // namespace halyard
