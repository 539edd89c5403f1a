// Quantized weights: what halyard_quantization makes of a row of a matrix, by its formulas in float64, and matrices in blocks of
// Q4_K, which packing takes as they are.
#ifndef HALYARD_OPERATIONS_QUANTIZED_H
#define HALYARD_OPERATIONS_QUANTIZED_H

#include <functional>

#include "halyard/halyard.h"
#include "reference.h"

namespace halyard::operations {

/** Codes and what they share, of one group of inputs of one output. */
struct QuantizedGroup {
    std::vector<int> codes;
    float scale = 0;  // before it is rounded to the scales' type
    int zero = 0;
};
QuantizedGroup quantized_group(const Row &weights, int bits, bool asymmetric);

/** The values of a whole row [in]. */
Row quantized_values(const Row &weights, const halyard_quantization &quantization);

/** Bytes of a weight: its code and its share of the scale and of the zero. */
double bytes_of_weight(const halyard_quantization &quantization, std::int64_t in);

/** A matrix [out, in] in blocks of GGUF's Q4_K, quantized to nearest: a group of 32 inputs spans its least and its largest weight
 *  and 0, a block's d and dmin its greatest scale and minimum. ggml searches for smaller errors; products take the same time. */
class Q4KMatrix {
public:
    static constexpr std::int64_t block_inputs = 256, block_bytes = 144;

    /** `row` gives the weights of an output; `in` is a multiple of block_inputs. */
    Q4KMatrix(std::int64_t out, std::int64_t in, const std::function<Row(std::int64_t)> &row);

    std::int64_t out() const { return outs; }
    std::int64_t bytes_of_row() const { return ins / block_inputs * block_bytes; }
    /** [out, bytes_of_row()] */
    const std::vector<std::uint8_t> &bytes() const { return blocks; }
    /** The values that the blocks of an output stand for. */
    Row row(std::int64_t output) const;
    /** The magnitudes of the products of a code and its scale and of the minimum, which make a value by their difference, added. */
    Row magnitudes(std::int64_t output) const;
    halyard_status pack(const halyard_context *context, halyard_weights **weights) const;

private:
    Row row(std::int64_t output, int sign_of_minimum) const;

    std::int64_t outs, ins;
    std::vector<std::uint8_t> blocks;
};

}  // namespace halyard::operations

#endif
