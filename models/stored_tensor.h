// A tensor of a model as its files have it: one tensor of a file or, of a matrix that is quantized in a folder, several, which are
// checked here.
#ifndef HALYARD_MODELS_STORED_TENSOR_H
#define HALYARD_MODELS_STORED_TENSOR_H

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gguf_formats.h"
#include "halyard/model.hpp"
#include "mapped_file.h"
#include "quantization_config.h"

namespace halyard::models {

inline bool same(DLDataType a, DLDataType b) noexcept {
    return a.code == b.code && a.bits == b.bits;
}

/// As the functions of mapped_file.h, with the bytes of a tensor.
inline void read_ahead(const TensorInfo &info) noexcept {
    read_ahead(info.data, static_cast<std::size_t>(info.bytes));
}
inline void let_go(const TensorInfo &info) noexcept {
    let_go(info.data, static_cast<std::size_t>(info.bytes));
}

/// What the tensors of a quantized matrix are called, behind the name of its module; empty: there is none.
struct CodeNames {
    const char *codes, *scales, *zeros, *order, *shape;
};
CodeNames code_names(CodeFormat format) noexcept;

/// Valid as long as the files, the configuration and the shape that it was found with.
struct StoredTensor {
    const TensorInfo *tensor = nullptr;                ///< its numbers, blocks or codes
    const std::vector<std::int64_t> *shape = nullptr;  ///< of its numbers
    std::string format;                                ///< "F32", "Q4_K", "GPTQ 4 bits"
    std::optional<DLDataType> dtype;                   ///< none: it is quantized
    const BlockFormat *blocks = nullptr;               ///< of rows of GGUF's blocks

    // A matrix that is quantized in several tensors has these.
    const QuantizationConfig *codes = nullptr;
    const TensorInfo *scales = nullptr, *zeros = nullptr;  ///< no zeros: they are in the middle of the codes
    const TensorInfo *order = nullptr;                     ///< none: groups are in the order of their inputs
    std::vector<const TensorInfo *> others;                ///< what is checked and not used

    /// Calls `visit` with each tensor that it is in.
    template<class Visit>
    void each_tensor(const Visit &visit) const {
        for (const TensorInfo *const info : {tensor, scales, zeros, order}) {
            if (info != nullptr) {
                visit(*info);
            }
        }
        for (const TensorInfo *const info : others) {
            visit(*info);
        }
    }
    std::int64_t bytes() const;
    /// Whether it can lie beside another matrix, as gate and up do.
    bool fits_beside(const StoredTensor &other) const;
};

/// The tensors of a model's files.
struct TensorFiles {
    const std::filesystem::path &path;       ///< of the model
    const std::vector<TensorInfo> &tensors;  ///< by name
    const QuantizationConfig *quantization;  ///< null: each is one tensor
};

/// Throws `Error` unless the tensor is there, in this shape and in a format that is supported.
StoredTensor find_stored(const TensorFiles &files, const std::string &name, const std::vector<std::int64_t> &shape);

/// Whether it is a bias of nothing but zeros beside a quantized matrix: old files of GPTQ have them where the model has none.
bool is_bias_of_zeros(const TensorFiles &files, const TensorInfo &info);

}  // namespace halyard::models

#endif
