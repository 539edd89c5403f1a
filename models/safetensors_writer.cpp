#include "safetensors_writer.h"

#include "json.h"

namespace halyard::models {

namespace {

/// Tensors in the order of the table, without gaps.
std::string safetensors_header(const std::vector<TensorEntry> &tensors) {
    Json::Object table, metadata;
    metadata["format"].value = std::string("pt");  // transformers asks for it
    table["__metadata__"].value = std::move(metadata);
    std::uint64_t offset = 0;
    for (const TensorEntry &tensor : tensors) {
        Json::Array shape, offsets;
        for (const std::int64_t extent : tensor.shape) {
            shape.emplace_back().value = static_cast<std::uint64_t>(extent);
        }
        offsets.emplace_back().value = offset;
        offset += static_cast<std::uint64_t>(tensor.bytes);
        offsets.emplace_back().value = offset;
        Json::Object entry;
        entry["dtype"].value = tensor.dtype;
        entry["shape"].value = std::move(shape);
        entry["data_offsets"].value = std::move(offsets);
        table[tensor.name].value = std::move(entry);
    }
    std::string text = json_text(table);
    constexpr std::size_t alignment = 8;  // of the tensors' bytes
    text.append((alignment - text.size() % alignment) % alignment, ' ');
    return text;
}

}  // namespace

SafeTensorsWriter::SafeTensorsWriter(const std::filesystem::path &path, const std::vector<TensorEntry> &tensors)
    : file_(path) {
    const std::string header = safetensors_header(tensors);
    const std::uint64_t length = header.size();  // little-endian, as this library's targets are
    file_.write(&length, sizeof length);
    file_.write(header.data(), header.size());
}

}  // namespace halyard::models
