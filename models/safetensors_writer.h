// Files of safetensors, written: the header first, then one tensor after another. The format: the README of huggingface/safetensors.
#ifndef HALYARD_MODELS_SAFETENSORS_WRITER_H
#define HALYARD_MODELS_SAFETENSORS_WRITER_H

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "replacement_file.h"

namespace halyard::models {

/// A tensor of a file to be written.
struct TensorEntry {
    std::string name;
    std::string dtype;                ///< "F32", "I8", ...
    std::vector<std::int64_t> shape;  ///< outermost axis first
    std::int64_t bytes;
};

/// Failures throw `Error`, and leave what was there before.
class SafeTensorsWriter {
public:
    SafeTensorsWriter(const std::filesystem::path &path, const std::vector<TensorEntry> &tensors);

    /// The bytes of the next tensor, in the order of the table.
    void write(const void *data, std::int64_t bytes) { file_.write(data, static_cast<std::size_t>(bytes)); }
    /// Gives the file its name when all tensors are written.
    void finish() { file_.finish(); }

private:
    ReplacementFile file_;
};

}  // namespace halyard::models

#endif
