// A matrix in codes as the folders of compressed-tensors, GPTQ and AWQ have it: which tensors that takes, and what is in them.
// The layouts are those that runtime/core/code_formats.cpp reads.
#ifndef HALYARD_MODELS_CODE_ENCODER_H
#define HALYARD_MODELS_CODE_ENCODER_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "encoding_errors.h"
#include "gguf_formats.h"
#include "quantization_config.h"
#include "safetensors_writer.h"
#include "stored_tensor.h"

namespace halyard::models {

/// A matrix that gets codes.
struct CodingTask {
    StoredTensor stored;
    std::int64_t stored_heads = 0;     ///< `Part::interleaved_heads` of the stored tensor
    std::string module;                ///< "model.layers.0.mlp.up_proj."
    std::vector<std::int64_t> shape;   ///< [out, in]
    const QuantizationConfig *config;  ///< groups are in the order of their inputs
    const BlockFormat *scales;         ///< F32, F16 or BF16

    /// Its tensors, in the order in which they are written.
    std::vector<TensorEntry> entries() const;
};

/// Fills `tensors`, the bytes of task.entries(), with so many threads, of which they do not depend. Throws `Error` where a
/// value is NaN or Inf, or too large for the scales.
EncodingErrors encode_matrix(const CodingTask &task, int threads, std::vector<std::vector<std::byte>> &tensors);

}  // namespace halyard::models

#endif
