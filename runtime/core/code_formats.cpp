// The formats, read one k block of 16 outputs at a time. Bytes are little-endian; sources of what is read:
//
//   blocks of GGUF      ggml, src/ggml-common.h (block_q8_0 ...) and dequantize_row_q8_0 ... in src/ggml-quants.c
//   compressed-tensors  pack_to_int32 in compressors/pack_quantized/helpers.py
//   GPTQ                pack in AutoGPTQ, nn_modules/qlinear
//   AWQ                 WQLinear_GEMM.from_linear in AutoAWQ, modules/linear/gemm.py
#include "core/code_formats.h"

#include <cstring>
#include <iterator>

namespace halyard {
namespace {

// ---- GGUF ----

/** Where the numbers of one block go: its codes in the order of inputs, the rest in columns 16 elements apart. */
struct BlockTarget {
    CodeTile &tile;
    int64_t column, number;  // of the block in the k block
    uint8_t *codes;

    void scale(const uint8_t *f16) const { memcpy(tile.scales + place() * 2, f16, 2); }
    void minimum(const uint8_t *f16) const { memcpy(tile.minima + place() * 2, f16, 2); }
    /** One of several groups of a block. */
    uint8_t &factor(int group, int groups) const { return tile.factors[place(group, groups)]; }
    uint8_t &zero(int group, int groups) const { return tile.zeros[place(group, groups)]; }

private:
    int64_t place(int group = 0, int groups = 1) const { return (number * groups + group) * panel_width + column; }
};

/** Lower halves of bytes, then upper ones: codes of 2 * count inputs. */
void split_halves(const uint8_t *packed, int count, uint8_t *codes) {
    for (int i = 0; i < count; i++) {
        codes[i] = packed[i] & 15;
        codes[count + i] = packed[i] >> 4;
    }
}

/** Adds 16 to the codes whose bits, of 32 inputs, are set, and an offset to all. */
void add_fifth_bits(const uint8_t *bits, uint8_t offset, uint8_t *codes) {
    for (int i = 0; i < 4; i++) {
        // The byte in each of 8 bytes, of which byte j keeps bit j; a byte that is not 0 then carries into its highest bit.
        const uint64_t all = bits[i] * UINT64_C(0x0101010101010101) & UINT64_C(0x8040201008040201);
        const uint64_t sixteens = (all + UINT64_C(0x7f7f7f7f7f7f7f7f)) >> 3 & UINT64_C(0x1010101010101010);
        uint64_t eight;
        memcpy(&eight, codes + 8 * i, 8);
        eight += sixteens + offset * UINT64_C(0x0101010101010101);
        memcpy(codes + 8 * i, &eight, 8);
    }
}

void read_q8_0(const uint8_t *block, const BlockTarget &to) {
    to.scale(block);
    for (int i = 0; i < 32; i++) {
        to.codes[i] = block[2 + i] ^ 128;
    }
}

void read_q4_0(const uint8_t *block, const BlockTarget &to) {
    to.scale(block);
    split_halves(block + 2, 16, to.codes);
}

void read_q4_1(const uint8_t *block, const BlockTarget &to) {
    to.scale(block);
    to.minimum(block + 2);
    split_halves(block + 4, 16, to.codes);
}

void read_q5_0(const uint8_t *block, const BlockTarget &to) {
    to.scale(block);
    split_halves(block + 6, 16, to.codes);
    add_fifth_bits(block + 2, 128 - 16, to.codes);
}

void read_q5_1(const uint8_t *block, const BlockTarget &to) {
    to.scale(block);
    to.minimum(block + 2);
    split_halves(block + 8, 16, to.codes);
    add_fifth_bits(block + 4, 0, to.codes);
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
        split_halves(block + 16 + 32 * i, 32, to.codes + 64 * i);
    }
}

void read_q5_k(const uint8_t *block, const BlockTarget &to) {
    read_two_levels(block, to);
    const uint8_t *const fifth_bits = block + 16, *const packed = block + 48;
    for (int i = 0; i < 4; i++) {
        split_halves(packed + 32 * i, 32, to.codes + 64 * i);
        for (int j = 0; j < 32; j++) {
            to.codes[64 * i + j] |= static_cast<uint8_t>((fifth_bits[j] >> 2 * i & 1) << 4);
            to.codes[64 * i + 32 + j] |= static_cast<uint8_t>((fifth_bits[j] >> (2 * i + 1) & 1) << 4);
        }
    }
}

void read_q6_k(const uint8_t *block, const BlockTarget &to) {
    to.scale(block + 208);
    for (int i = 0; i < 16; i++) {
        to.factor(i, 16) = block[192 + i];
    }
    for (int half = 0; half < 2; half++) {
        const uint8_t *const low = block + 64 * half, *const high = block + 128 + 32 * half;
        uint8_t *const codes = to.codes + 128 * half;
        for (int i = 0; i < 32; i++) {
            constexpr int offset = 128 - 32;
            codes[i] = static_cast<uint8_t>(((low[i] & 15) | (high[i] & 3) << 4) + offset);
            codes[32 + i] = static_cast<uint8_t>(((low[32 + i] & 15) | (high[i] >> 2 & 3) << 4) + offset);
            codes[64 + i] = static_cast<uint8_t>((low[i] >> 4 | (high[i] >> 4 & 3) << 4) + offset);
            codes[96 + i] = static_cast<uint8_t>((low[32 + i] >> 4 | high[i] >> 6 << 4) + offset);
        }
    }
}

template<void (*read_block)(const uint8_t *block, const BlockTarget &to), int block_inputs, int block_bytes>
void read_blocks(const CodeSource &source, int64_t column, int64_t columns, int64_t k, int64_t inputs, CodeTile &tile) {
    for (int64_t i = 0; i < columns; i++) {
        const auto *block =
            reinterpret_cast<const uint8_t *>(source.codes.at(column + i, k / block_inputs * block_bytes));
        for (int64_t number = 0; number < inputs / block_inputs; number++) {
            read_block(block, {tile, i, number, tile.codes[i] + number * block_inputs});
            block += block_bytes;
        }
    }
}

// ---- Scales and zeros in tensors of their own ----

/** Scales, and zeros that zero(output, group) gives, once for each group of the packed form. */
template<typename Zero>
void read_scales(const CodeSource &source, int64_t column, int64_t columns, int64_t k, int64_t inputs, CodeTile &tile,
                 const Zero &zero) {
    const CodeLayout &layout = source.layout;
    const int64_t size = size_of(layout.scale_dtype);
    for (int64_t i = 0; i < layout.groups(inputs); i++) {
        const int64_t group = (k + i * layout.block_group()) / source.group;
        for (int64_t c = 0; c < columns; c++) {
            memcpy(tile.scales + (i * panel_width + c) * size, source.scales.at(column + c, group), size);
        }
        for (int64_t c = 0; c < columns && layout.kind == ScaleKind::zero; c++) {
            tile.zeros[i * panel_width + c] = static_cast<uint8_t>(zero(column + c, group));
        }
    }
}

uint32_t word_at(const char *data) {
    uint32_t word;
    memcpy(&word, data, 4);
    return word;
}

/** Zeros in words that join those of outputs, the one of output n at bits * place[n], counted within a word. */
struct JoinedZeros {
    const CodeSource &source;
    const int *place;
    uint32_t added;  // to what is stored, modulo 2^bits

    uint32_t operator()(int64_t output, int64_t group) const {
        const int bits = source.layout.bits, joined = 32 / bits;
        const uint32_t word = word_at(source.zeros.at(output / joined, group));
        return ((word >> bits * place[output % joined]) + added) & ((1u << bits) - 1);
    }
};

constexpr int in_order[8] = {0, 1, 2, 3, 4, 5, 6, 7};
constexpr int awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7};

void read_int8(const CodeSource &source, int64_t column, int64_t columns, int64_t k, int64_t inputs, CodeTile &tile) {
    read_scales(source, column, columns, k, inputs, tile, [&](int64_t output, int64_t group) {
        return static_cast<uint8_t>(*source.zeros.at(output, group)) ^ 128;
    });
    for (int64_t c = 0; c < columns; c++) {
        const char *const codes = source.codes.at(column + c, k);
        for (int64_t i = 0; i < inputs; i++) {
            tile.codes[c][i] = static_cast<uint8_t>(codes[i]) ^ 128;
        }
    }
}

/** Codes that lie one after the other, in words: two in a byte where they have 4 bits, the lower half first. */
void unpack(const CodeLayout &layout, const void *packed, int64_t inputs, uint8_t *codes) {
    if (layout.bits == 8) {
        memcpy(codes, packed, inputs);
        return;
    }
    const auto *const bytes = static_cast<const uint8_t *>(packed);
    for (int64_t i = 0; i < (inputs + 1) / 2; i++) {
        codes[2 * i] = bytes[i] & 15;
        codes[2 * i + 1] = bytes[i] >> 4;
    }
}

void read_compressed_tensors(const CodeSource &source, int64_t column, int64_t columns, int64_t k, int64_t inputs,
                             CodeTile &tile) {
    read_scales(source, column, columns, k, inputs, tile, JoinedZeros{source, in_order, 0});
    for (int64_t c = 0; c < columns; c++) {
        unpack(source.layout, source.codes.at(column + c, k / (32 / source.layout.bits)), inputs, tile.codes[c]);
    }
}

/** Words of a k block by output, each of inputs in their order. */
using ColumnWords = uint32_t[panel_width][k_block / 4];

template<uint32_t added_to_zeros>
void read_gptq(const CodeSource &source, int64_t column, int64_t columns, int64_t k, int64_t inputs, CodeTile &tile) {
    read_scales(source, column, columns, k, inputs, tile, JoinedZeros{source, in_order, added_to_zeros});
    const int64_t joined = 32 / source.layout.bits, rows = (inputs + joined - 1) / joined;
    ColumnWords words;
    for (int64_t row = 0; row < rows; row++) {
        const char *const data = source.codes.at(column, k / joined + row);
        for (int64_t c = 0; c < columns; c++) {
            words[c][row] = word_at(data + 4 * c);
        }
    }
    for (int64_t c = 0; c < columns; c++) {
        unpack(source.layout, words[c], inputs, tile.codes[c]);
    }
}

/** Exchanges the bits of a and b, which are so many bits apart. */
void exchange(uint32_t *a, uint32_t *b, int64_t count, int apart, uint32_t mask) {
    for (int64_t i = 0; i < count; i++) {
        const uint32_t differing = (a[i] >> apart ^ b[i]) & mask;
        b[i] ^= differing;
        a[i] ^= differing << apart;
    }
}

void read_awq(const CodeSource &source, int64_t column, int64_t columns, int64_t k, int64_t inputs, CodeTile &tile) {
    read_scales(source, column, columns, k, inputs, tile, JoinedZeros{source, awq_place, 0});
    // Two words for 16 outputs, side by side; 8 inputs of them are two matrices of 8 x 8 codes to be transposed.
    constexpr int64_t side = 8, halves = panel_width / side;
    const int64_t halves_there = (columns + side - 1) / side, octets = (inputs + side - 1) / side;
    uint32_t rows[side][k_block / side * halves] = {};
    for (int64_t i = 0; i < inputs; i++) {
        const char *const data = source.codes.at(column / side, k + i);
        memcpy(&rows[i % side][i / side * halves], data, 4 * halves_there);
    }
    constexpr uint32_t masks[5] = {0, 0x0f0f0f0f, 0x00ff00ff, 0, 0x0000ffff};
    for (int apart = 4; apart > 0; apart /= 2) {
        for (int i = 0; i < side; i++) {
            if ((i & apart) == 0) {
                exchange(rows[i], rows[i + apart], octets * halves, 4 * apart, masks[apart]);
            }
        }
    }
    uint32_t words[k_block / side];
    for (int64_t c = 0; c < columns; c++) {
        for (int64_t octet = 0; octet < octets; octet++) {
            words[octet] = rows[awq_place[c % side]][octet * halves + c / side];
        }
        unpack(source.layout, words, inputs, tile.codes[c]);
    }
}

// ---- The table, in the order of halyard_code_format ----

constexpr DLDataType i8 = {kDLInt, 8, 1}, u8 = {kDLUInt, 8, 1}, i32 = {kDLInt, 32, 1};

constexpr CodeFormat formats[] = {
    {"Q8_0", ScaleKind::plain, 8, 32, 32, 34, u8, false, false, read_blocks<read_q8_0, 32, 34>},
    {"Q4_0", ScaleKind::plain, 4, 32, 32, 18, u8, false, false, read_blocks<read_q4_0, 32, 18>},
    {"Q4_1", ScaleKind::minimum, 4, 32, 32, 20, u8, false, false, read_blocks<read_q4_1, 32, 20>},
    {"Q5_0", ScaleKind::plain, 8, 32, 32, 22, u8, false, false, read_blocks<read_q5_0, 32, 22>},
    {"Q5_1", ScaleKind::minimum, 8, 32, 32, 24, u8, false, false, read_blocks<read_q5_1, 32, 24>},
    {"Q4_K", ScaleKind::two_levels, 4, 32, 256, 144, u8, false, false, read_blocks<read_q4_k, 256, 144>},
    {"Q5_K", ScaleKind::two_levels, 8, 32, 256, 176, u8, false, false, read_blocks<read_q5_k, 256, 176>},
    {"Q6_K", ScaleKind::two_levels_signed, 8, 16, 256, 210, u8, false, false, read_blocks<read_q6_k, 256, 210>},
    {"int8", ScaleKind::zero, 8, 0, 0, 0, i8, false, false, read_int8},
    {"compressed-tensors", ScaleKind::zero, 0, 0, 0, 0, i32, false, false, read_compressed_tensors},
    {"GPTQ", ScaleKind::zero, 0, 0, 0, 0, i32, true, false, read_gptq<1>},
    {"GPTQ v2", ScaleKind::zero, 0, 0, 0, 0, i32, true, false, read_gptq<0>},
    {"AWQ", ScaleKind::zero, 4, 0, 0, 0, i32, true, true, read_awq},
};
static_assert(std::size(formats) == HALYARD_CODES_AWQ + 1);

}  // namespace

const CodeFormat *code_format(halyard_code_format format) {
    const auto number = static_cast<unsigned>(format);
    return number < std::size(formats) ? &formats[number] : nullptr;
}

}  // namespace halyard
