// Panels of quantized weights: where their codes and scales lie, and which values they stand for.
//
// A panel is a sequence of k blocks, each of its scales, filled up to a multiple of 64 bytes, and then its codes: one stream, in
// the order in which it is used. Codes are unsigned, words of 32 bits [rows][16 columns] (layout/codes.h). A group of inputs, which lies in
// one k block, shares what is stored for it; every part below is [16 columns] a group, one part after the other:
//
//   kind               parts of a k block, in this order                                        weight
//   plain              s                                                                        s * (q - 2^(bits - 1))
//   zero               s; z u8                                                                  s * (q - z)
//   minimum            s; m                                                                     s * q + m
//   two_levels         d, dmin f16 for each 256 inputs; sc, mn u8 for each 32                   (d * sc) * q - (dmin * mn)
//   two_levels_signed  d f16 for each 256 inputs; sc s8 for each 16                             (d * sc) * (q - 128)
//
// Products take that as scale c + offset with c = q - center (layout/codes.h), in f32: the offset is 0, s * (center - z),
// fma(center, s, m) or fma(center, d * sc, -(dmin * mn)), rounded once, and the products of two stored numbers are exact. Scales
// are finite, and no larger than 2^100 in magnitude. Codes of 8 bits with minima are below 128. Codes beyond in_features are those
// of 0 (0 where there are minima), and columns beyond out_features have 0 in every part of the scales.
#ifndef HALYARD_RUNTIME_LAYOUT_CODE_PANELS_H
#define HALYARD_RUNTIME_LAYOUT_CODE_PANELS_H

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "layout/codes.h"
#include "layout/dtype.h"
#include "layout/matmul.h"

namespace halyard {

/** The parts of a k block's scales, as offsets from the first; those that a kind lacks are 0. */
struct ScaleParts {
    int64_t scales = 0, minima = 0;  // s or d, m or dmin: of scale_dtype
    int64_t factors = 0;             // sc: u8, or s8 if signed
    int64_t zeros = 0;               // z or mn: u8
    int64_t bytes = 0;               // of all, a multiple of 64
};

/** The form of a matrix's codes and scales. */
struct CodeLayout {
    int bits = 0;  // of a code: 8 or 4; 0 where a matrix has no codes
    ScaleKind kind = ScaleKind::plain;
    DType scale_dtype = DType::f32;
    int group = 0;  // inputs: 16, 32, 64, 128 or 256; 0: all of them

    explicit operator bool() const { return bits != 0; }

    bool valid() const {
        const bool known_group = group == 0 || (group >= 16 && group <= 256 && (group & (group - 1)) == 0);
        const bool of_f16 = scale_dtype == DType::f16;
        return (bits == 4 || bits == 8) && static_cast<int>(scale_dtype) < dtype_count && known_group &&
               (kind == ScaleKind::plain || kind == ScaleKind::zero ||
                (kind == ScaleKind::minimum && scale_dtype != DType::f32) ||
                (kind == ScaleKind::two_levels && of_f16 && group == 32) ||
                (kind == ScaleKind::two_levels_signed && of_f16 && group == 16 && bits == 8));
    }

    bool two_levels() const { return kind == ScaleKind::two_levels || kind == ScaleKind::two_levels_signed; }
    /** Inputs of a group in a k block. */
    int block_group() const { return group > 0 ? group : k_block; }
    bool has_minima() const { return kind == ScaleKind::minimum || kind == ScaleKind::two_levels; }
    /** Whether weights are scale c + offset with another offset than 0. */
    bool has_offsets() const { return has_minima() || kind == ScaleKind::zero; }
    /** The code of 0, where there is one that is the same in all groups. */
    int code_of_zero() const {
        return kind == ScaleKind::plain ? 1 << (bits - 1) : kind == ScaleKind::two_levels_signed ? 128 : 0;
    }

    // What `inputs` inputs of a k block have:
    int64_t groups(int64_t inputs) const { return (inputs + block_group() - 1) / block_group(); }
    /** To the end of the last group, or of 16 inputs where there is but one. */
    int64_t whole_inputs(int64_t inputs) const { return whole_inputs(block_group(), inputs); }
    static int64_t whole_inputs(int64_t group, int64_t inputs) {
        const int64_t unit = inputs < group ? 16 : group;
        return (inputs + unit - 1) / unit * unit;
    }
    /** As many s or d as there are. */
    int64_t scales(int64_t inputs) const {
        return two_levels() ? (inputs + super_group - 1) / super_group : groups(inputs);
    }
    int64_t code_rows(int64_t inputs) const { return (inputs + code_row_inputs(bits) - 1) / code_row_inputs(bits); }
    int64_t code_bytes(int64_t inputs) const { return code_rows(inputs) * panel_width * 4; }
    ScaleParts scale_parts(int64_t inputs) const {
        const int64_t wide = scales(inputs) * panel_width * size_of(scale_dtype), bytes = groups(inputs) * panel_width;
        ScaleParts parts;
        parts.bytes = wide;
        const auto add = [&](bool there, int64_t &part, int64_t of_part) {
            part = there ? parts.bytes : 0;
            parts.bytes += there ? of_part : 0;
        };
        add(has_minima(), parts.minima, wide);
        add(two_levels(), parts.factors, bytes);
        add(kind == ScaleKind::zero || kind == ScaleKind::two_levels, parts.zeros, bytes);
        parts.bytes = (parts.bytes + 63) / 64 * 64;
        return parts;
    }
    int64_t block_bytes(int64_t inputs) const { return code_bytes(inputs) + scale_parts(inputs).bytes; }

    static int64_t blocks(int64_t in_features) { return (in_features + k_block - 1) / k_block; }
    static int64_t block_inputs(int64_t in_features, int64_t block) {
        return std::min<int64_t>(k_block, in_features - block * k_block);
    }
    /** Bytes of a whole panel. */
    int64_t panel_bytes(int64_t in_features) const {
        const int64_t before = blocks(in_features) - 1;
        return before * block_bytes(k_block) + block_bytes(block_inputs(in_features, before));
    }
};

/** One k block of one panel: its scales, and behind them its codes. */
template<typename Byte>
struct CodeBlock {
    Byte *scales, *codes;
    int64_t inputs;
};

/** Where `panels` has a k block of a panel. */
template<typename Byte>
CodeBlock<Byte> code_block(const CodeLayout &layout, Byte *panels, int64_t in_features, int64_t panel, int64_t block) {
    const int64_t inputs = CodeLayout::block_inputs(in_features, block);
    Byte *const scales = panels + panel * layout.panel_bytes(in_features) + block * layout.block_bytes(k_block);
    return {scales, scales + layout.scale_parts(inputs).bytes, inputs};
}

/** Writes the codes of a k block, [inputs][16], to their words; codes of the last row beyond `inputs` are `rest`, by column. */
inline void store_codes(const CodeLayout &layout, const uint8_t (*codes)[panel_width], const uint8_t *rest,
                        const CodeBlock<char> &block) {
    const int row_inputs = code_row_inputs(layout.bits);
    auto *word = reinterpret_cast<uint32_t *>(block.codes);
    for (int64_t first = 0; first < block.inputs; first += row_inputs) {
        for (int column = 0; column < panel_width; column++, word++) {
            *word = 0;
            for (int i = 0; i < row_inputs; i++) {
                const uint8_t code = first + i < block.inputs ? codes[first + i][column] : rest[column];
                *word |= uint32_t{code} << code_shift(layout.bits, i);
            }
        }
    }
}

/** A stored number as f32. */
inline float widened(DType dtype, const void *stored) {
    uint32_t bits = 0;
    memcpy(&bits, stored, size_of(dtype));
    const auto as_float = [](uint32_t all) {
        float value;
        memcpy(&value, &all, 4);
        return value;
    };
    if (dtype != DType::f16) {
        return as_float(dtype == DType::bf16 ? bits << 16 : bits);
    }
    const uint32_t sign = bits >> 15 << 31, magnitude = (bits & 0x7fff) << 13;
    const float finite = as_float(magnitude) * 0x1p112f;  // the exponent's bias is another
    return magnitude >= 0x0f800000 ? as_float(sign | magnitude | 0x7f800000) : sign != 0 ? -finite : finite;
}

}  // namespace halyard

#endif
