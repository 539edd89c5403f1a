// One tensor of a model in another format, with the errors that this makes.
#ifndef HALYARD_MODELS_TENSOR_ENCODER_H
#define HALYARD_MODELS_TENSOR_ENCODER_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "encoding_errors.h"
#include "gguf_writer.h"
#include "stored_tensor.h"

namespace halyard::models {

/// How a tensor of the output comes of a stored one.
struct EncodingTask {
    StoredTensor stored;
    std::int64_t stored_heads = 0;       ///< `Part::interleaved_heads` of the stored tensor
    GgufTensor tensor;                   ///< what it becomes
    std::int64_t interleaved_heads = 0;  ///< not 0: rows get the order of `Part::interleaved_heads`
    bool is_transposed = false;          ///< the stored matrix is [in, out]
    float added = 0;                     ///< to each value

    /// It has its format and its order already.
    bool is_copied() const;
};

/// Fills `blocks`, the bytes of task.tensor, with so many threads. Throws `Error` where a value is NaN or Inf, or too large for
/// the format.
EncodingErrors encode_tensor(const EncodingTask &task, int threads, std::vector<std::byte> &blocks);

}  // namespace halyard::models

#endif
