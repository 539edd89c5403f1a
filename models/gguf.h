// Files in the GGUF format: typed metadata, a table of tensors, and the tensors' bytes. Nothing of a file is believed:
// every number is checked before it is used. The format: ggml's docs/gguf.md; little-endian files of versions 2 and 3.
#ifndef HALYARD_MODELS_GGUF_H
#define HALYARD_MODELS_GGUF_H

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "halyard/model.hpp"
#include "json.h"
#include "mapped_file.h"

namespace halyard::models {

/// A file, mapped into memory as long as this lives and never copied. A file that is opened holds what it says: metadata
/// and tensors with one name each, formats that are supported, and data that is in the file and overlaps nowhere. A model in
/// several files has the metadata of the first and the tensors of all.
class Gguf {
public:
    /// A file or, where it is the first of several, all of them.
    static Gguf open(const std::filesystem::path &path);
    /// The bytes of a file that is the only one, which must outlive this; `name` is what messages call it.
    static Gguf from_memory(const void *data, std::size_t bytes, const std::string &name);

    /// All tensors, by name. Their dtype is the name of a `BlockFormat`, their shape has the outermost axis first, which
    /// the format has last, and `data` is the raw blocks of the rows.
    const std::vector<TensorInfo> &tensors() const noexcept { return tensors_; }
    /// Null if there is none of that name.
    const TensorInfo *find(std::string_view name) const noexcept;

    /// An entry of metadata as it is in the file.
    struct Entry {
        std::string key;
        std::string_view value;  ///< its type and its bytes, behind the key
    };
    /// In the order of the file.
    std::vector<Entry> entries() const;
    /// All keys, sorted.
    std::vector<std::string> keys() const;
    bool has(std::string_view key) const noexcept { return metadata_.find(key) != metadata_.end(); }
    /// The value of a key, or null if there is none. Arrays come without their elements.
    Json metadata(std::string_view key) const;

    const std::string &file() const noexcept { return file_; }

private:
    class Reader;

    /// Where the value lies: of a string its text, of an array its elements.
    struct Value {
        std::uint32_t type;
        const std::byte *data;
        std::uint64_t bytes;
        std::string_view stored = {};  // all of it, from its type on
    };

    /// Which file of a model this is, from 0 on, of how many, and how many tensors are in all of them.
    struct Part {
        std::int64_t number, count, tensors;
    };

    explicit Gguf(std::string name) : file_(std::move(name)) {}
    static Gguf open_one(const std::filesystem::path &path);
    void read(const std::byte *data, std::size_t size);
    Part part() const;
    void add_parts(const std::filesystem::path &path, const Part &first);
    void add_part(const std::filesystem::path &path, const Part &wanted);

    std::string file_;
    std::map<std::string, Value, std::less<>> metadata_;
    std::vector<TensorInfo> tensors_;
    std::vector<MappedFile> mapped_;
};

}  // namespace halyard::models

#endif
