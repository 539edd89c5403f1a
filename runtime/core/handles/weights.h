// Packed weights: how a weight matrix lies in memory and in files, and the handle the library works with.
//
// The packed form is one block of little-endian bytes, the same in memory and in a file:
//
//   PackedHeader       128 bytes
//   column sums        f32 [columns]: of each column of the packed matrix, for the mean of a deferred LayerNorm
//   column bias        f32 [columns]: the folded norm's bias times the matrix, 0 where there is none
//   order              s32 [in_features], in version 4: input i of the panels is multiplied by x[order[i]]
//   panels             [panels][in_features][16] in the matrix's dtype, from the next multiple of 4096 bytes on; of bf16
//                      [panels][(in_features + 1) / 2][16] words of 32 bits; of a quantized matrix, whose dtype is f32 as its
//                      values are, codes and scales (layout/code_panels.h)
//
// A panel holds 16 columns, input by input, in bf16 two by two: the earlier input in the upper half of a word, and 0 in the
// lower half of the last if in_features is odd. Columns beyond out_features are 0, and so are their sums and biases and the
// bytes before the panels that hold nothing. A gated matrix alternates panels of the gate and of `up`: panel 2 p holds the
// gate's columns 16 p to 16 p + 15, panel 2 p + 1 the same of `up`.
//
// Where a norm's weight is folded, an element is round(w * f), f = norm_weight + (0 or 1), each operation rounded to f32
// and the result once to the dtype; a NaN is 0x7fc00000 before it is rounded. Both sums are accumulated in f64, input by
// input, and rounded once to f32: those of columns over the elements as packed, those of the bias over norm_bias times
// the elements of the source.
#ifndef HALYARD_RUNTIME_CORE_HANDLES_WEIGHTS_H
#define HALYARD_RUNTIME_CORE_HANDLES_WEIGHTS_H

#include <cstdint>

#include "halyard/halyard.h"
#include "layout/code_panels.h"
#include "layout/dtype.h"
#include "layout/matmul.h"

namespace halyard {

/** Bytes of so many inputs of a panel, in whole rows. */
constexpr int64_t input_bytes(int64_t inputs, DType dtype) {
    const int64_t of_row = row_inputs(dtype);
    return (inputs + of_row - 1) / of_row * of_row * panel_width * size_of(dtype);
}

constexpr int64_t panel_alignment = 4096;

/** What the address of a block must be a multiple of. */
constexpr int64_t block_alignment = 64;

constexpr char packed_magic[8] = {'H', 'A', 'L', 'Y', 'A', 'R', 'D', 'W'};
/** The version of the packed format: 4 for quantized weights with an order of inputs, 3 for others, 2 for bf16, else 1. Version 2
 *  stores bf16 in pairs of inputs; bf16 blocks of version 1, input by input, are converted when they are read. */
inline uint32_t packed_version(DType dtype, const CodeLayout &codes = {}, bool ordered = false) {
    return codes ? (ordered ? 4 : 3) : dtype == DType::bf16 ? 2 : 1;
}

struct PackedHeader {
    char magic[8];
    uint32_t version;
    uint32_t dtype;  // DType
    uint32_t gated;  // 0 or 1
    uint32_t norm_folded;
    int64_t in_features, out_features;  // of one matrix
    int64_t bytes;                      // of the whole block
    uint64_t payload_checksum;          // of everything behind the header: see below
    // CodeLayout of a quantized matrix, else 0.
    uint32_t code_bits, scale_kind, scale_dtype, code_group;
    char reserved[48];         // 0
    uint64_t header_checksum;  // XXH3_64bits of everything before it
};
static_assert(sizeof(PackedHeader) == 128, "the header's size is part of the format");
static_assert(static_cast<int>(DType::f32) == 0 && static_cast<int>(DType::f16) == 1 &&
                  static_cast<int>(DType::bf16) == 2,
              "the numbers of the dtypes are part of the format");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "a big-endian target needs conversions where blocks are made and read");

// The checksum of the payload is a sum modulo 2^64, so that threads can make it piece by piece in any order: piece 0 is
// what lies between header and panels, piece i + 1 is panel i, and each counts XXH3_64bits_withSeed(piece, its number).

/** Bytes before the order of inputs, if there is one. */
constexpr int64_t order_offset(int64_t panels) {
    constexpr int64_t floats = 2 * panel_width;  // sums and bias of each panel
    return static_cast<int64_t>(sizeof(PackedHeader) + panels * floats * sizeof(float));
}

/** Bytes before the panels; `ordered`: inputs of which there is an order. */
constexpr int64_t panels_offset(int64_t panels, int64_t ordered) {
    const int64_t used = order_offset(panels) + ordered * static_cast<int64_t>(sizeof(int32_t));
    return (used + panel_alignment - 1) / panel_alignment * panel_alignment;
}

}  // namespace halyard

/** A view of a packed block, and who owns it. */
struct halyard_weights {
    halyard::DType dtype;
    halyard::CodeLayout codes;  // of a quantized matrix; dtype is f32 then
    bool gated, norm_folded;
    int64_t in_features, out_features;
    int64_t panels;            // of both matrices
    const float *column_sums;  // [16 panels]
    const float *column_bias;  // [16 panels]
    const int32_t *order;      // [in_features]: see above; null: x is multiplied as it is
    const char *panel_data;

    // Weights on a device have a matrix in place of panels: see cuda/linear/weights.h.
    bool on_cuda;
    int device_id;
    bool transposed, has_column_bias;
    int64_t pitch, up_column, columns;
    const char *matrix;
    const float *zeros, *one;

    const char *block;  // the whole, from the header on
    int64_t bytes;
    bool writable;  // the library packed a matrix into the block, so that another may follow
    // `mapping`: unmapped with the handle, `mapped_bytes` from `mapped` on; `device`: memory of the device, freed with it
    enum class Owner { caller, mapping, device } owner;
    void *mapped;
    int64_t mapped_bytes;

    /** Bytes of one panel. */
    int64_t panel_bytes() const {
        return codes ? codes.panel_bytes(in_features) : halyard::input_bytes(in_features, dtype);
    }
};

#endif
