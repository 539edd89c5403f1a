#include "gguf_writer.h"

#include <algorithm>

#include "views.h"

namespace halyard::models {

namespace {

constexpr std::uint32_t version = 3, u32_type = 4, f32_type = 6, string_type = 8;
constexpr std::uint64_t alignment = 32;

std::uint64_t aligned(std::uint64_t bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
}

/// Little-endian, as this library's targets are.
template<class T>
std::string bytes_of(T value) {
    return {reinterpret_cast<const char *>(&value), sizeof value};
}

/// A string with its length before it.
std::string text_of(std::string_view text) {
    return bytes_of<std::uint64_t>(text.size()).append(text);
}

std::string entry_of(const GgufTensor &tensor, std::uint64_t offset) {
    std::string entry = text_of(tensor.name) + bytes_of(static_cast<std::uint32_t>(tensor.shape.size()));
    std::for_each(tensor.shape.rbegin(), tensor.shape.rend(), [&](std::int64_t extent) { entry += bytes_of(extent); });
    return entry + bytes_of(tensor.format->type) + bytes_of(offset);
}

}  // namespace

void GgufMetadata::set(const std::string &key, std::uint32_t value) {
    set_stored(key, bytes_of(u32_type) + bytes_of(value));
}

void GgufMetadata::set(const std::string &key, float value) {
    set_stored(key, bytes_of(f32_type) + bytes_of(value));
}

void GgufMetadata::set(const std::string &key, const std::string &value) {
    set_stored(key, bytes_of(string_type) + text_of(value));
}

void GgufMetadata::set_stored(const std::string &key, std::string_view stored) {
    const auto at =
        std::find_if(entries_.begin(), entries_.end(), [&](const auto &entry) { return entry.first == key; });
    (at != entries_.end() ? *at : entries_.emplace_back(key, "")).second = stored;
}

std::string GgufMetadata::bytes() const {
    std::string all;
    for (const auto &[key, stored] : entries_) {
        all += text_of(key) + stored;
    }
    return all;
}

std::int64_t GgufTensor::bytes() const {
    return elements_of(shape) / format->elements * format->bytes;
}

GgufWriter::GgufWriter(const std::filesystem::path &path, const GgufMetadata &metadata,
                       const std::vector<GgufTensor> &tensors)
    : file_(path) {
    std::string header = "GGUF" + bytes_of(version) + bytes_of<std::uint64_t>(tensors.size()) +
                         bytes_of<std::uint64_t>(metadata.size()) + metadata.bytes();
    std::uint64_t offset = 0;
    for (const GgufTensor &tensor : tensors) {
        header += entry_of(tensor, offset);
        offset += aligned(static_cast<std::uint64_t>(tensor.bytes()));
    }
    file_.write(header.data(), header.size());
    pad();
    file_.set_length(file_.size() + offset);
}

void GgufWriter::write(const void *data, std::int64_t bytes) {
    file_.write(data, static_cast<std::size_t>(bytes));
    pad();
}

void GgufWriter::pad() {
    constexpr char zeros[alignment] = {};
    file_.write(zeros, aligned(file_.size()) - file_.size());
}

}  // namespace halyard::models
