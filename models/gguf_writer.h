// GGUF files, written: metadata and the table of tensors first, then one tensor after another. The format: ggml's docs/gguf.md.
#ifndef HALYARD_MODELS_GGUF_WRITER_H
#define HALYARD_MODELS_GGUF_WRITER_H

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gguf_formats.h"
#include "replacement_file.h"

namespace halyard::models {

/// Entries of metadata. One that is set again keeps its place.
class GgufMetadata {
public:
    void set(const std::string &key, std::uint32_t value);
    void set(const std::string &key, float value);
    void set(const std::string &key, const std::string &value);
    /// `stored`: its type and its bytes, as in `Gguf::Entry`.
    void set_stored(const std::string &key, std::string_view stored);

    /// All of them, as a file has them.
    std::string bytes() const;
    std::size_t size() const noexcept { return entries_.size(); }

private:
    std::vector<std::pair<std::string, std::string>> entries_;
};

/// A tensor of a file to be written.
struct GgufTensor {
    std::string name;
    std::vector<std::int64_t> shape;  ///< outermost axis first; rows are whole blocks
    const BlockFormat *format;

    std::int64_t bytes() const;
};

/// Writes version 3 with an alignment of 32 bytes. Failures throw `Error`, and leave what was there before.
class GgufWriter {
public:
    GgufWriter(const std::filesystem::path &path, const GgufMetadata &metadata, const std::vector<GgufTensor> &tensors);

    /// The bytes of the next tensor, in the order of the table.
    void write(const void *data, std::int64_t bytes);
    /// A file with all metadata, the table, and zeros in place of tensors that are not written yet.
    const std::filesystem::path &temporary() const noexcept { return file_.temporary(); }
    /// Replaces the file when all tensors are written.
    void finish() { file_.finish(); }

private:
    void pad();

    ReplacementFile file_;
};

}  // namespace halyard::models

#endif
