// Quantized weights in float64: what halyard_quantization makes of a row of a matrix, by its formulas.
#ifndef HALYARD_OPERATIONS_QUANTIZED_H
#define HALYARD_OPERATIONS_QUANTIZED_H

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

}  // namespace halyard::operations

#endif
